# SPDX-License-Identifier: __LICENSE__
"""Scaled ReLU: ``max(x, 0) * scale``."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def __PYTHON_NAME__(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """``max(x, 0) * scale`` for each element, rounded once; half types compute in float32.

    # [gradient]
    Differentiable once in ``x``; the gradient at 0 is 0. A second derivative is an error.

    # [end]
    Args:
        x: float32, float16, bfloat16 or float64, of any shape; copied where it is not contiguous.
        scale: factor of the positive elements.

    Returns:
        A new contiguous tensor of the same shape and dtype.

    Raises:
        ValueError: the dtype is another one.
    """
    # [gradient]
    in_forward_mode = torch.autograd.forward_ad._current_level >= 0  # noqa: SLF001
    if in_forward_mode or (x.requires_grad and torch.is_grad_enabled()):
        return _Differentiable.apply(x, scale)
    # [end]
    return ops.__PYTHON_NAME__(x, scale)


# The fake implementation for torch.compile: shape and dtype of the result, without a computation.
@torch.library.register_fake(add_op_namespace_prefix("__PYTHON_NAME__"))
def _fake(x: torch.Tensor, scale: float) -> torch.Tensor:  # noqa: ARG001
    torch._check(  # noqa: SLF001
        x.dtype in _DTYPES,
        lambda: f"__PYTHON_NAME__: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )
    return x.new_empty(x.shape)


# [gradient]
@torch.library.register_fake(add_op_namespace_prefix("__PYTHON_NAME___backward"))
def _backward_fake(grad: torch.Tensor, x: torch.Tensor, scale: float) -> torch.Tensor:  # noqa: ARG001
    return x.new_empty(x.shape)


class _Differentiable(torch.autograd.Function):
    """The operator with its gradient; torch refuses forward mode, for which it has no formula."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):  # noqa: ANN001, ANN205
        return ops.__PYTHON_NAME__(x, scale)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ANN001, ANN205, ARG004
        x, ctx.scale = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the gradient is wanted, as by create_graph=True
            return _Gradient.apply(grad, x, ctx.scale), None
        return ops.__PYTHON_NAME___backward(grad, x, ctx.scale), None


class _Gradient(torch.autograd.Function):
    """The gradient where it is differentiated itself: an error, not a missing derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad, x, scale):  # noqa: ANN001, ANN205
        return ops.__PYTHON_NAME___backward(grad, x, scale)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ANN001, ANN205
        pass

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205, ARG004
        message = "__PYTHON_NAME__ is differentiable once: it has no second derivative"
        raise RuntimeError(message)


# [end]
