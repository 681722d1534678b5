# SPDX-License-Identifier: __LICENSE__
"""Scaled ReLU: ``max(x, 0) * scale``."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["__PYTHON_NAME__"]


def __PYTHON_NAME__(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """``max(x, 0) * scale`` for each element of a float32, float16, bfloat16 or float64 tensor."""
    return ops.__PYTHON_NAME__(x, scale)


# The fake implementation for torch.compile: shape and dtype of the result, without a computation.
@torch.library.register_fake(add_op_namespace_prefix("__PYTHON_NAME__"))
def _fake(x: torch.Tensor, scale: float) -> torch.Tensor:  # noqa: ARG001
    return x.new_empty(x.shape)
