# SPDX-License-Identifier: Apache-2.0
"""The functions, the gradient and what they promise a compiler."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

# Overloads, not packets: which one is meant need not be found out again at each call.
_forward = ops.matmul.default
_into = ops.matmul_into.default

_ACTIVATIONS = {None: 0, "relu": 1, "gelu_tanh": 2, "gelu": 3, "silu": 4}
_FUNCTIONS = {
    "relu": torch.nn.functional.relu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor | None = None,
    *,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """``activation(a @ b + bias) + residual``, by a fused kernel where one is ahead of torch.

    Differentiable in all four, any number of times. A call that records a gradient, and one whose
    product is torch's, rounds the values before the activation; with a gradient, the activation
    and the residual are torch's own. Under
    ``torch.autocast`` the inputs are cast as those of ``torch.matmul`` are.

    Args:
        a: float32, float16, bfloat16 or float64 ``[..., rows, depth]`` with any strides.
        b: ``[..., depth, columns]`` of the dtype of ``a``. The leading dimensions broadcast.
        out: ``[..., rows, columns]``, written and returned; then no gradient is recorded.
        bias: ``[columns]``.
        activation: None, ``"relu"``, ``"gelu_tanh"``, ``"gelu"`` or ``"silu"``.
        residual: broadcasts to the shape of the result.

    Returns:
        ``[..., rows, columns]``. float32 is multiplied exactly on CUDA unless
        ``torch.backends.cuda.matmul.allow_tf32`` is set. The same bits in every run.

    Raises:
        ValueError: a shape, dtype, device or ``activation`` is not as above, or a gradient would be
            recorded of a call with ``out``.
        RuntimeError: CUDA refused the launch.
    """
    code = _ACTIVATIONS.get(activation)
    if code is None:
        names = ", ".join(repr(name) for name in _ACTIVATIONS)
        raise ValueError(f"matmul: activation must be one of {names}, got {activation!r}")
    if a.dim() < 2 or b.dim() < 2:
        raise ValueError(
            "matmul: a must be [..., rows, depth] and b [..., depth, columns],"
            f" got {list(a.shape)} and {list(b.shape)}"
        )
    if not a.is_meta and torch.is_autocast_enabled(a.device.type):
        dtype = torch.get_autocast_dtype(a.device.type)
        a, b = a.to(dtype), b.to(dtype)
        bias = None if bias is None else bias.to(dtype)
        residual = None if residual is None else residual.to(dtype)
    tf32 = a.dtype is torch.float32 and _tf32_allowed()
    # Forward mode as well: torch refuses it there, instead of tangents of zeros.
    if forward_ad._current_level >= 0 or (
        torch.is_grad_enabled()
        and any(t is not None and t.requires_grad for t in (a, b, bias, residual))
    ):
        if out is not None:
            raise ValueError("matmul: out is given, but a, b, bias or residual requires a gradient")
        y = _Matmul.apply(a, b, bias, tf32)
        y = y if activation is None else _FUNCTIONS[activation](y)
        return y if residual is None else y + residual
    return _run(a, b, (bias, residual, None, None, code, False), tf32, out)


def scaled_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    *,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """``(scale_a * a) @ (b * scale_b) + bias`` of fp8, without a gradient.

    On compute capability 9.0 the sums are those of the tensor cores, which keep fewer bits than
    float32, as ``use_fast_accum=True`` of torch has them.

    Args:
        a: float8_e4m3fn or float8_e5m2 ``[..., rows, depth]``. Copied once where the depth does not
            lie side by side.
        b: one of the same dtypes ``[..., depth, columns]``, likewise: best the transposed of a
            contiguous ``[columns, depth]``.
        scale_a: float32, one number, or ``[rows]``.
        scale_b: float32, one number, or ``[columns]``.
        bias: ``[columns]`` of ``out_dtype``.
        out_dtype: bfloat16 or float16.

    Returns:
        ``[..., rows, columns]`` of ``out_dtype``. The same bits in every run.

    Raises:
        ValueError: a shape, dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    if out_dtype not in {torch.bfloat16, torch.float16}:
        raise ValueError(f"matmul: out_dtype must be bfloat16 or float16, got {out_dtype}")
    if a.dim() < 2 or b.dim() < 2:
        raise ValueError(
            "matmul: a must be [..., rows, depth] and b [..., depth, columns],"
            f" got {list(a.shape)} and {list(b.shape)}"
        )
    if a.dtype not in _FP8:
        raise ValueError(f"matmul: a must be float8_e4m3fn or float8_e5m2, got {a.dtype}")
    if a.stride(-1) != 1:
        a = a.contiguous()
    if b.stride(-2) != 1:
        b = b.mT.contiguous().mT
    options = (bias, None, scale_a.flatten(), scale_b.flatten(), 0, out_dtype is torch.float16)
    return _run(a, b, options, tf32=False)


def _run(a, b, options, tf32, out=None):
    """The product of any leading dimensions by ops that take two or three."""
    bias, residual, scale_a, scale_b, activation, half = options
    if a.dim() == b.dim() == 2 and (residual is None or residual.dim() == 2):
        if residual is not None and residual.shape[0] == 1 != a.shape[0]:
            residual = residual.expand(a.shape[0], b.shape[1])
        if residual is not None and residual.shape[1] == 1 != b.shape[1]:
            residual = residual.expand(a.shape[0], b.shape[1])
        if out is None:
            return _forward(a, b, bias, residual, scale_a, scale_b, activation, half, tf32)
        _into(a, b, bias, residual, scale_a, scale_b, activation, tf32, out)
        return out
    leading = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*leading, a.shape[-2], b.shape[-1])
    flat = residual is None or (residual.shape == shape and residual.is_contiguous())
    if b.dim() == 2 and a.is_contiguous() and flat and out is None and scale_a is None:
        # One matrix for all: their rows are those of one product.
        residual = None if residual is None else residual.flatten(0, -2)
        return _run(a.flatten(0, -2), b, (bias, residual, *options[2:]), tf32).view(shape)
    # An operand with one matrix for all is not copied: its stride is 0.
    left, right = (_batched(t, leading) for t in (a, b))
    if residual is not None:
        residual = _batched(residual.expand(shape), leading)
    if out is None:
        y = _forward(left, right, bias, residual, scale_a, scale_b, activation, half, tf32)
        return y.view(shape)
    if out.shape != shape:
        raise ValueError(f"matmul: out must be {list(shape)}, got {list(out.shape)}")
    flat = out.view(-1, *shape[-2:]) if _is_one_batch(out) else out.new_empty(shape).flatten(0, -3)
    _into(left, right, bias, residual, scale_a, scale_b, activation, tf32, flat)
    if flat.data_ptr() != out.data_ptr():
        out.copy_(flat.view(shape))
    return out


def _batched(t, leading):
    matrices = 1
    for size in leading:
        matrices *= size
    if all(size == 1 for size in t.shape[:-2]):
        one = t.reshape(1, *t.shape[-2:])
        return one.expand(matrices, -1, -1)
    return t.expand(*leading, *t.shape[-2:]).reshape(matrices, *t.shape[-2:])


def _is_one_batch(t):
    return t.dim() == 3 or t.is_contiguous()


@torch.compiler.assume_constant_result  # Dynamo compiles anew when it changes
def _tf32_allowed() -> bool:
    return torch.backends.cuda.matmul.allow_tf32


class _Matmul(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b, bias, tf32):
        return _run(a, b, (bias, None, None, None, 0, False), tf32)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004
        a, b, *_ = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        wants_a, wants_b, wants_bias, _ = ctx.needs_input_grad
        shape = a.shape
        if b.dim() == 2:  # one matrix for all: one product sums over their rows
            a, grad = a.flatten(0, -2), grad.flatten(0, -2)
        db = _slope(a.mT, grad, b) if wants_b else None
        da = _slope(grad, b.mT, a).view(shape) if wants_a else None
        # Last: a sum reads the gradient from the L2 cache faster than a product does from memory.
        of_bias = grad.sum(tuple(range(grad.dim() - 1))) if wants_bias else None
        return da, db, of_bias, None


def _slope(left, right, of):
    """The product as the gradient of a tensor, in its memory order, so without a copy."""
    if of.dim() == 2 and of.stride(-1) != 1 and of.stride(-2) == 1:
        return matmul(right.mT, left.mT).mT.sum_to_size(of.shape)
    return matmul(left, right).sum_to_size(of.shape)


_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _check(a, b, bias, residual) -> None:
    """What the ops check when they run, told already while a compiler traces."""
    torch._check(
        a.dtype in (*_DTYPES, *_FP8),
        lambda: f"matmul: a must be float32, float16, bfloat16 or float64, got {a.dtype}",
    )
    torch._check(
        b.dtype == a.dtype or (a.dtype in _FP8 and b.dtype in _FP8),
        lambda: f"matmul: b must be {a.dtype} like a, got {b.dtype}",
    )
    torch._check(
        a.dim() == b.dim() and a.dim() in {2, 3} and a.shape[-1] == b.shape[-2],
        lambda: (
            "matmul: a must be [..., rows, depth] and b [..., depth, columns],"
            f" got {list(a.shape)} and {list(b.shape)}"
        ),
    )
    columns = b.shape[-1]
    torch._check(
        bias is None or (bias.dim() == 1 and bias.shape[0] == columns),
        lambda: f"matmul: bias must be [{columns}], got {list(bias.shape)}",
    )
    torch._check(
        residual is None or residual.shape[-2:] == (a.shape[-2], columns),
        lambda: (
            f"matmul: residual must be [..., {a.shape[-2]}, {columns}], got {list(residual.shape)}"
        ),
    )


@torch.library.register_fake(add_op_namespace_prefix("matmul"))
def _forward_fake(  # noqa: PLR0917
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    scale_a: torch.Tensor | None,  # noqa: ARG001
    scale_b: torch.Tensor | None,  # noqa: ARG001
    activation: int,  # noqa: ARG001
    half: bool,  # noqa: FBT001
    tf32: bool,  # noqa: ARG001, FBT001
) -> torch.Tensor:
    _check(a, b, bias, residual)
    narrow = torch.float16 if half else torch.bfloat16
    dtype = narrow if a.dtype in _FP8 else a.dtype
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=dtype)


@torch.library.register_fake(add_op_namespace_prefix("matmul_into"))
def _into_fake(  # noqa: PLR0917
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    scale_a: torch.Tensor | None,  # noqa: ARG001
    scale_b: torch.Tensor | None,  # noqa: ARG001
    activation: int,  # noqa: ARG001
    tf32: bool,  # noqa: ARG001, FBT001
    out: torch.Tensor,
) -> None:
    _check(a, b, bias, residual)
    torch._check(
        out.shape == (*a.shape[:-1], b.shape[-1]),
        lambda: f"matmul: out must be {[*a.shape[:-1], b.shape[-1]]}, got {list(out.shape)}",
    )
