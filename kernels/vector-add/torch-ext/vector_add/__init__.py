# SPDX-License-Identifier: Apache-2.0
"""The sum of two tensors, on CPUs and NVIDIA GPUs, with its gradient written twice.

``vector_add`` has its gradient in C++ (``VectorAdd`` in torch_binding.cpp), ``vector_add_python``
in Python (``_VectorAdd`` below). They give the same; the one in C++ makes its node without Python.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

__all__ = ["vector_add", "vector_add_python"]

# Overloads, not packets: which one is meant need not be found out again at each call.
_vector_add = ops.vector_add.default
_forward = ops.vector_add_forward.default


def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``a + b``, with the same bits, for two tensors of one shape and device.

    Differentiable in both, any number of times.

    Args:
        a: float32, float16, bfloat16 or float64, of any shape and strides.
        b: one of these dtypes, of the shape of ``a``. Of another dtype, or laid out otherwise, the
            sum is torch's own.

    Returns:
        A tensor like ``a``, of the dtype that torch promotes both to.

    Raises:
        ValueError: devices or shapes differ (shapes are never broadcast), or a dtype is not as
            above.
        RuntimeError: CUDA refused the launch.
    """
    return _vector_add(a, b)


def vector_add_python(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same with the gradient in Python."""
    # Forward mode as well: torch refuses it there, instead of tangents of zeros.
    if forward_ad._current_level >= 0 or (
        torch.is_grad_enabled() and (a.requires_grad or b.requires_grad)
    ):
        return _VectorAdd.apply(a, b)
    return _forward(a, b)


class _VectorAdd(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a, b):
        return _forward(a, b)

    @staticmethod
    def setup_context(ctx, inputs, output):
        """Keep nothing: the gradient needs neither input."""

    @staticmethod
    def backward(ctx, grad):  # noqa: ARG004
        return grad, grad


@torch.library.register_fake(add_op_namespace_prefix("vector_add"))
@torch.library.register_fake(add_op_namespace_prefix("vector_add_forward"))
def _fake(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for name, given in (("a", a), ("b", b)):
        torch._check(
            given.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64),
            lambda name=name, given=given: (
                f"vector_add: {name} must be float32, float16, bfloat16 or float64,"
                f" got {given.dtype}"
            ),
        )
    torch._check(
        a.shape == b.shape,
        lambda: (
            f"vector_add: b must have the shape of a {list(a.shape)}, got {list(b.shape)}; "
            "shapes are not broadcast: expand the smaller one"
        ),
    )
    return torch.empty_like(a, dtype=torch.promote_types(a.dtype, b.dtype))
