# SPDX-License-Identifier: Apache-2.0
"""ReLU times a number in one pass, on CPUs and NVIDIA GPUs, with its gradient."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

__all__ = ["relu_scale", "relu_scale_"]

# Overloads, not packets: which one is meant need not be found out again at each call.
_forward = ops.relu_scale.default
_inplace = ops.relu_scale_.default
_backward = ops.relu_scale_backward.default


def relu_scale(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """``torch.relu(x) * alpha``, with the same bits.

    Differentiable in ``x``, any number of times; the gradient at 0 is 0, as torch's.

    Args:
        x: float32, float16, bfloat16 or float64, of any shape and strides. Fastest when dense;
            others are copied once.
        alpha: the factor. Half precisions compute in float32 and round once.

    Returns:
        A tensor like ``x``.

    Raises:
        ValueError: a dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    if _differentiated(x):
        return _ReluScale.apply(x, alpha)
    return _forward(x, alpha)


def relu_scale_(x: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """The same in place; returns ``x``.

    The gradient needs what ``x`` was, so this refuses an ``x`` that has one.

    Raises:
        ValueError: as ``relu_scale``, or a derivative by ``x`` is being recorded, or ``x`` is
            expanded, so that elements share memory.
        RuntimeError: CUDA refused the launch.
    """
    if _differentiated(x):
        raise ValueError(
            "relu_scale_: x requires a gradient, which needs the values that this overwrites; "
            "use relu_scale"
        )
    _inplace(x, alpha)
    return x


def _differentiated(x: torch.Tensor) -> bool:
    """Whether a derivative is recorded: in forward mode, which torch then refuses, as well."""
    return forward_ad._current_level >= 0 or (x.requires_grad and torch.is_grad_enabled())


class _ReluScale(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, alpha):
        return _forward(x, alpha)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004
        x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a graph of the gradient is wanted
            return _ReluScaleBackward.apply(grad, x, ctx.alpha), None
        return _backward(grad, x, ctx.alpha), None


class _ReluScaleBackward(torch.autograd.Function):
    """The gradient's gradient: linear in ``grad``, constant in ``x`` but for the kink."""

    generate_vmap_rule = True

    @staticmethod
    def forward(grad, x, alpha):
        return _backward(grad, x, alpha)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004
        _, x, ctx.alpha = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return _ReluScaleBackward.apply(grad, x, ctx.alpha), None, None


@torch.library.register_fake(add_op_namespace_prefix("relu_scale"))
def _forward_fake(x: torch.Tensor, alpha: float) -> torch.Tensor:  # noqa: ARG001
    _check(x)
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("relu_scale_"))
def _inplace_fake(x: torch.Tensor, alpha: float) -> None:  # noqa: ARG001
    _check(x)


@torch.library.register_fake(add_op_namespace_prefix("relu_scale_backward"))
def _backward_fake(grad: torch.Tensor, x: torch.Tensor, alpha: float) -> torch.Tensor:  # noqa: ARG001
    _check(x)
    torch._check(
        grad.shape == x.shape,
        lambda: f"relu_scale: grad must be {list(x.shape)}, got {list(grad.shape)}",
    )
    return torch.empty_like(x)


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _check(x: torch.Tensor) -> None:
    """What the op checks when it runs, told already while a compiler traces."""
    torch._check(
        x.dtype in _DTYPES,
        lambda: f"relu_scale: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )
