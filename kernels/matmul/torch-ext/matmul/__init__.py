# SPDX-License-Identifier: Apache-2.0
"""Matrix products with what follows them, on CPUs and NVIDIA GPUs, with the gradient."""

from . import layers
from .functional import matmul, scaled_matmul

__all__ = ["layers", "matmul", "scaled_matmul"]
