# SPDX-License-Identifier: Apache-2.0
"""The functions, their gradient and what they promise a compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

if TYPE_CHECKING:
    from collections.abc import Sequence

# Overloads, not packets: which one is meant need not be found out again at each call.
_norm = ops.norm.default
_norm_kept = ops.norm_kept.default
_add_norm = ops.add_norm.default
_add_norm_kept = ops.add_norm_kept.default
_backward = ops.norm_backward.default


def layer_norm(
    x: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, as ``torch.nn.functional.layer_norm``.

    Computed in float32 (float64 of float64) and rounded once. Differentiable in all three tensors,
    any number of times. The same bits in every run on one kind of device, of gradients too.

    Args:
        x: float32, float16, bfloat16 or float64 ``[..., *normalized_shape]``. Copied once where
            its rows do not lie side by side, or where the distance of its leading dimensions
            differs.
        normalized_shape: the last dimensions of ``x``, over which is normalized.
        weight: ``normalized_shape`` of the dtype of ``x``, or float32 where that is a half type.
        bias: likewise, of the dtype of ``weight``.
        eps: what is added to the variance.

    Returns:
        A contiguous tensor of the shape and dtype of ``x``; on CUDA under ``torch.autocast``
        float32 of half types, as torch has it.

    Raises:
        ValueError: a shape, dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    if x.is_cuda and torch.is_autocast_enabled("cuda"):
        x, weight, bias = (
            t.float() if t is not None and t.dtype in _HALF else t for t in (x, weight, bias)
        )
    return _of_shape(x, None, normalized_shape, weight, bias, eps, rms=False)


def rms_norm(
    x: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """``x / sqrt(mean of x^2 + eps) * weight``, as ``torch.nn.functional.rms_norm``.

    As ``layer_norm`` in all that is not said here.

    Args:
        x: as of ``layer_norm``.
        normalized_shape: as of ``layer_norm``.
        weight: as of ``layer_norm``.
        eps: what is added to the mean; None for that of the dtype of ``x``, as in torch.

    Returns:
        A contiguous tensor of the shape and dtype of ``x``.

    Raises:
        ValueError: a shape, dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    return _of_shape(x, None, normalized_shape, weight, None, _given(eps, x), rms=True)


def add_layer_norm(  # noqa: PLR0917 - what layer_norm takes, and the residual
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """LayerNorm of ``x + residual``, and the sum: what a block of a transformer begins with.

    Args:
        x: as of ``layer_norm``.
        residual: of the shape and dtype of ``x``.
        normalized_shape: as of ``layer_norm``.
        weight: as of ``layer_norm``.
        bias: as of ``layer_norm``.
        eps: as of ``layer_norm``.

    Returns:
        The normalized sum and the sum, rounded to the dtype of ``x``; the rounded one is
        normalized, so the bits are those of two calls.

    Raises:
        ValueError: a shape, dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    return _of_shape(x, residual, normalized_shape, weight, bias, eps, rms=False)


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """RMSNorm of ``x + residual``, and the sum, as ``add_layer_norm``.

    Args:
        x: as of ``layer_norm``.
        residual: of the shape and dtype of ``x``.
        normalized_shape: as of ``layer_norm``.
        weight: as of ``layer_norm``.
        eps: as of ``rms_norm``.

    Returns:
        The normalized sum and the sum.

    Raises:
        ValueError: a shape, dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    return _of_shape(x, residual, normalized_shape, weight, None, _given(eps, x), rms=True)


def _given(eps: float | None, x: torch.Tensor) -> float:
    if eps is not None:
        return eps
    _check_dtype(x)
    return torch.finfo(x.dtype).eps


def _of_shape(x, residual, normalized_shape, weight, bias, eps, *, rms):  # noqa: PLR0917
    """The last dimensions as one."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    last = len(shape)
    if not shape or tuple(x.shape[-last:]) != shape:
        raise ValueError(
            f"layer_norm: the last dimensions of x must be {list(shape)}, got {list(x.shape)}"
        )
    if last == 1:
        return _of_rows(x, residual, weight, bias, eps, rms)
    for name, given in (("weight", weight), ("bias", bias)):
        if given is not None and tuple(given.shape) != shape:
            raise ValueError(f"layer_norm: {name} must be {list(shape)}, got {list(given.shape)}")
    flat = [None if t is None else t.flatten() for t in (weight, bias)]
    rows = [None if t is None else t.flatten(-last) for t in (x, residual)]
    made = _of_rows(*rows, *flat, eps, rms)
    if residual is None:
        return made.view(x.shape)
    return tuple(each.view(x.shape) for each in made)


def _of_rows(x, residual, weight, bias, eps, rms):  # noqa: PLR0917
    # Forward mode as well: torch refuses it there, instead of tangents of zeros.
    if forward_ad._current_level >= 0 or (
        torch.is_grad_enabled()
        and (
            x.requires_grad
            or (residual is not None and residual.requires_grad)
            or (weight is not None and weight.requires_grad)
            or (bias is not None and bias.requires_grad)
        )
    ):
        y, *total, _ = _Norm.apply(x, residual, weight, bias, eps, rms)
        return (y, *total) if total else y
    if residual is None:
        return _norm(x, weight, bias, eps, rms)
    return _add_norm(x, residual, weight, bias, eps, rms)


class _Norm(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, residual, weight, bias, eps, rms):  # noqa: PLR0917 - what apply takes
        if residual is None:
            return _norm_kept(x, weight, bias, eps, rms)
        return _add_norm_kept(x, residual, weight, bias, eps, rms)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, _, weight, bias, ctx.eps, ctx.rms = inputs
        _, *total, statistics = output
        ctx.save_for_backward(total[0] if total else x, weight, bias, statistics)
        ctx.mark_non_differentiable(statistics)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dy, *sums):
        dsum = sums[0] if len(sums) == 2 else None  # after it comes that of the statistics
        x, weight, bias, statistics = ctx.saved_tensors
        wants_x, wants_residual, wants_weight, wants_bias, *_ = ctx.needs_input_grad
        if dy is None:  # the sum alone was used
            return dsum, dsum if wants_residual else None, None, None, None, None
        if torch.is_grad_enabled():  # a graph of the gradient is wanted: in torch's own operators
            dx, dweight, dbias = _by_torch(dy, dsum, x, weight, bias, ctx.eps, ctx.rms)
        else:
            dx, dweight, dbias = _backward(
                dy, dsum, x, weight, bias, statistics, ctx.rms, wants_weight, wants_bias
            )
        return (
            dx if wants_x else None,
            dx if wants_residual else None,
            dweight if wants_weight else None,
            dbias if wants_bias else None,
            None,
            None,
        )


def _by_torch(dy, dsum, x, weight, bias, eps, rms):  # noqa: PLR0917
    """The gradients in operators that have one themselves."""
    wide = torch.float64 if x.dtype is torch.float64 else torch.float32
    d, s = dy.to(wide), x.to(wide)
    centred = s if rms else s - s.mean(-1, keepdim=True)
    inverse = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    normal = centred * inverse
    g = d if weight is None else d * weight.to(wide)
    dx = g - normal * (g * normal).mean(-1, keepdim=True)
    if not rms:
        dx = dx - g.mean(-1, keepdim=True)
    dx = dx * inverse
    if dsum is not None:
        dx = dx + dsum.to(wide)
    width = x.shape[-1]
    dweight = None if weight is None else (d * normal).reshape(-1, width).sum(0).to(weight.dtype)
    dbias = None if bias is None else d.reshape(-1, width).sum(0).to(bias.dtype)
    return dx.to(x.dtype), dweight, dbias


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_HALF = (torch.float16, torch.bfloat16)


def _check_dtype(x: torch.Tensor) -> None:
    torch._check_value(
        x.dtype in _DTYPES,
        lambda: f"layer_norm: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )


def _check(
    x: torch.Tensor,
    residual: torch.Tensor | None,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> None:
    """What the ops check when they run, told already while a compiler traces."""
    _check_dtype(x)
    torch._check(x.dim() >= 1, lambda: "layer_norm: x must have a dimension to normalize, got []")
    for name, given in (("weight", weight), ("bias", bias)):
        if given is None:
            continue
        torch._check(
            given.dim() == 1 and given.shape[0] == x.shape[-1],
            lambda name=name, given=given: (
                f"layer_norm: {name} must be [{x.shape[-1]}], got {list(given.shape)}"
            ),
        )
        torch._check(
            given.dtype == x.dtype or (x.dtype in _HALF and given.dtype is torch.float32),
            lambda name=name, given=given: (
                f"layer_norm: {name} must be {x.dtype} like x, got {given.dtype}"
            ),
        )
    torch._check(
        residual is None or (residual.shape == x.shape and residual.dtype == x.dtype),
        lambda: (
            f"layer_norm: residual must be {x.dtype} {list(x.shape)} like x,"
            f" got {residual.dtype} {list(residual.shape)}"
        ),
    )


def _statistics(x: torch.Tensor, rms: bool) -> torch.Tensor:  # noqa: FBT001
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    dtype = torch.float64 if x.dtype is torch.float64 else torch.float32
    return x.new_empty((1 if rms else 2, rows), dtype=dtype)


@torch.library.register_fake(add_op_namespace_prefix("norm"))
def _norm_fake(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,  # noqa: ARG001
    rms: bool,  # noqa: ARG001, FBT001
) -> torch.Tensor:
    _check(x, None, weight, bias)
    return x.new_empty(x.shape)


@torch.library.register_fake(add_op_namespace_prefix("norm_kept"))
def _norm_kept_fake(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,  # noqa: ARG001
    rms: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(x, None, weight, bias)
    return x.new_empty(x.shape), _statistics(x, rms)


@torch.library.register_fake(add_op_namespace_prefix("add_norm"))
def _add_norm_fake(  # noqa: PLR0917
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,  # noqa: ARG001
    rms: bool,  # noqa: ARG001, FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    _check(x, residual, weight, bias)
    return x.new_empty(x.shape), x.new_empty(x.shape)


@torch.library.register_fake(add_op_namespace_prefix("add_norm_kept"))
def _add_norm_kept_fake(  # noqa: PLR0917
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,  # noqa: ARG001
    rms: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _check(x, residual, weight, bias)
    return x.new_empty(x.shape), x.new_empty(x.shape), _statistics(x, rms)


@torch.library.register_fake(add_op_namespace_prefix("norm_backward"))
def _backward_fake(  # noqa: PLR0917
    dy: torch.Tensor,
    dsum: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    statistics: torch.Tensor,  # noqa: ARG001
    rms: bool,  # noqa: ARG001, FBT001
    wants_weight: bool,  # noqa: FBT001
    wants_bias: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _check(x, None, weight, bias)
    for name, given in (("dy", dy), ("dsum", dsum)):
        torch._check(
            given is None or (given.shape == x.shape and given.dtype == x.dtype),
            lambda name=name, given=given: (
                f"layer_norm: {name} must be {x.dtype} {list(x.shape)} like x,"
                f" got {given.dtype} {list(given.shape)}"
            ),
        )
    dweight = (x if weight is None else weight).new_empty(x.shape[-1] if wants_weight else 0)
    dbias = (x if bias is None else bias).new_empty(x.shape[-1] if wants_bias else 0)
    return x.new_empty(x.shape), dweight, dbias
