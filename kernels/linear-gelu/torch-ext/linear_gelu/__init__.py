# SPDX-License-Identifier: Apache-2.0
"""A linear layer and GELU in one kernel, on CPUs and NVIDIA GPUs, with the gradient."""

from . import layers
from .functional import linear_gelu

__all__ = ["layers", "linear_gelu"]
