# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts in one call, on CPUs and NVIDIA GPUs, with the gradient."""

from . import layers
from .functional import experts, moe, route

__all__ = ["experts", "layers", "moe", "route"]
