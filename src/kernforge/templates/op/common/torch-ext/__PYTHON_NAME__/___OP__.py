# SPDX-License-Identifier: __LICENSE__
"""The square of each element: ``x * x``."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["__OP__"]


def __OP__(x: torch.Tensor) -> torch.Tensor:
    """``x * x`` for each element of a float32, float16, bfloat16 or float64 tensor."""
    return ops.__OP__(x)


# What torch.compile needs to know: the result's shape and dtype, without running anything.
@torch.library.register_fake(add_op_namespace_prefix("__OP__"))
def _fake(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape)
