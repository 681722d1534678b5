# SPDX-License-Identifier: Apache-2.0
"""The function, its gradient and what it promises a compiler."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

# Overloads, not packets: which one is meant need not be found out again at each call.
_forward = ops.linear_gelu.default
_forward_kept = ops.linear_gelu_kept.default
_slope = ops.gelu_backward.default

_FORMULAS = {"tanh": True, "none": False}


def linear_gelu(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    approximate: str = "tanh",
) -> torch.Tensor:
    """``gelu(x @ weight.T + bias)``, by a fused kernel where one is ahead of torch's two.

    Differentiable in all three, any number of times. A call that records a gradient also writes the
    values before GELU, once, rounded to the dtype. Under ``torch.autocast`` the inputs are cast as
    those of ``torch.nn.functional.linear`` are.

    Args:
        x: float32, float16, bfloat16 or float64 ``[..., in_features]``. Copied once where the
            distance of its leading dimensions differs.
        weight: ``[out_features, in_features]`` of the dtype of ``x``.
        bias: ``[out_features]`` of the dtype of ``x``, or None.
        approximate: ``"tanh"`` or ``"none"``, as of ``torch.nn.functional.gelu``.

    Returns:
        A contiguous tensor ``[..., out_features]``. float32 is multiplied exactly on CUDA unless
        ``torch.backends.cuda.matmul.allow_tf32`` is set. The same bits in every run.

    Raises:
        ValueError: a shape, dtype, device or ``approximate`` is not as above.
        RuntimeError: CUDA refused the launch.
    """
    by_tanh = _FORMULAS.get(approximate)
    if by_tanh is None:
        raise ValueError(f"linear_gelu: approximate must be 'tanh' or 'none', got {approximate!r}")
    if not x.is_meta and torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    tf32 = x.dtype is torch.float32 and _tf32_allowed()
    # Forward mode as well: torch refuses it there, instead of tangents of zeros.
    if forward_ad._current_level >= 0 or (
        torch.is_grad_enabled()
        and (x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad))
    ):
        y, _ = _LinearGelu.apply(x, weight, bias, by_tanh, tf32)
        return y
    return _forward(x, weight, bias, by_tanh, tf32)


@torch.compiler.assume_constant_result  # Dynamo compiles anew when it changes
def _tf32_allowed() -> bool:
    return torch.backends.cuda.matmul.allow_tf32


class _LinearGelu(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weight, bias, by_tanh, tf32):
        return _forward_kept(x, weight, bias, by_tanh, tf32)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, bias, ctx.by_tanh, _ = inputs
        _, z = output
        ctx.save_for_backward(x, weight, bias, z)
        ctx.mark_non_differentiable(z)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad, _):
        if grad is None:
            return (None,) * 5
        x, weight, bias, z = ctx.saved_tensors
        wants_x, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        columns = weight.shape[0]
        if torch.is_grad_enabled():  # a graph of the gradient is wanted: in torch's own operators
            z = torch.nn.functional.linear(x, weight, bias)
            approximate = "tanh" if ctx.by_tanh else "none"
            dz = torch.ops.aten.gelu_backward(grad, z, approximate=approximate)
            dz = dz.reshape(-1, columns)
            sums = dz.sum(0)
        else:
            dz, sums = _slope(
                grad.reshape(-1, columns), z.view(-1, columns), ctx.by_tanh, wants_bias
            )
        dx = None
        if wants_x and x.dim() == 2 and x.stride(1) != 1 and x.stride(0) == 1:
            dx = (weight.t() @ dz.t()).t()  # in the memory order of x, as torch's
        elif wants_x:
            dx = (dz @ weight).view(x.shape)
        dw = dz.t() @ x.reshape(-1, weight.shape[1]) if wants_weight else None
        return dx, dw, sums if wants_bias else None, None, None


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
    """What the ops check when they run, told already while a compiler traces."""
    torch._check(
        x.dtype in _DTYPES,
        lambda: f"linear_gelu: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )
    torch._check(
        weight.dim() == 2,
        lambda: (
            f"linear_gelu: weight must be [out_features, in_features], got {list(weight.shape)}"
        ),
    )
    torch._check(
        x.dim() >= 1 and x.shape[-1] == weight.shape[1],
        lambda: (
            f"linear_gelu: the last dimension of x must be in_features of weight,"
            f" {weight.shape[1]}, got {list(x.shape)}"
        ),
    )
    torch._check(
        bias is None or (bias.dim() == 1 and bias.shape[0] == weight.shape[0]),
        lambda: f"linear_gelu: bias must be [{weight.shape[0]}], got {list(bias.shape)}",
    )


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@torch.library.register_fake(add_op_namespace_prefix("linear_gelu"))
def _forward_fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    by_tanh: bool,  # noqa: ARG001, FBT001
    tf32: bool,  # noqa: ARG001, FBT001
) -> torch.Tensor:
    _check(x, weight, bias)
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


@torch.library.register_fake(add_op_namespace_prefix("linear_gelu_kept"))
def _forward_kept_fake(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    by_tanh: bool,  # noqa: FBT001
    tf32: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    y = _forward_fake(x, weight, bias, by_tanh, tf32)
    return y, torch.empty_like(y)


@torch.library.register_fake(add_op_namespace_prefix("gelu_backward"))
def _slope_fake(
    grad: torch.Tensor,
    z: torch.Tensor,
    by_tanh: bool,  # noqa: ARG001, FBT001
    sums: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    torch._check(
        grad.dim() == 2 and grad.shape == z.shape,
        lambda: (
            f"linear_gelu: grad must have the shape of z {list(z.shape)}, a matrix,"
            f" got {list(grad.shape)}"
        ),
    )
    return z.new_empty(z.shape), z.new_empty(z.shape[1] if sums else 0)
