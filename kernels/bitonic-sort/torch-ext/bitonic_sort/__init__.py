# SPDX-License-Identifier: Apache-2.0
"""Sorted rows and the indices of their elements, on CPUs and NVIDIA GPUs, with the gradient."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from ._ops import add_op_namespace_prefix, ops

__all__ = ["sort", "topk"]

# Overloads, not packets: which one is meant need not be found out again at each call.
_sort = ops.sort.default


class Sorted(NamedTuple):
    """What ``sort`` and ``topk`` return.

    Attributes:
        values: the elements in order, of the dtype of the argument.
        indices: int64, where each of them was along the sorted dimension.
    """

    values: torch.Tensor
    indices: torch.Tensor


def sort(
    x: torch.Tensor,
    dim: int = -1,
    descending: bool = False,  # noqa: FBT001, FBT002 - as torch.sort
    stable: bool = False,  # noqa: ARG001, FBT001, FBT002
) -> Sorted:
    """The elements of ``x`` in order along a dimension, and their indices, as ``torch.sort``.

    NaN is greater than every number, all NaN are equal, and -0.0 equals 0.0. Equal elements keep
    their order always: the results are those of ``torch.sort(..., stable=True)``, bit by bit.
    Differentiable in ``x``, any number of times.

    Args:
        x: of a float type (float32, float16, bfloat16, float64), an integer type or bool, of any
            shape and strides; below 2^32 elements along ``dim``. Copied once unless contiguous with
            ``dim`` last.
        dim: which dimension is sorted.
        descending: from the greatest to the least.
        stable: taken for the sake of ``torch.sort``; the order of equal elements is kept anyway.

    Returns:
        ``(values, indices)`` of the shape of ``x``; contiguous where ``dim`` is the last dimension,
        else views of tensors in which it is. The same bits in every run.

    Raises:
        ValueError: a dtype, device or size is not as above.
        IndexError: there is no dimension ``dim``.
        RuntimeError: CUDA refused the launch.
    """
    return _along(x, dim, None, descending)


def topk(
    x: torch.Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,  # noqa: FBT001, FBT002 - as torch.topk
    sorted: bool = True,  # noqa: A002, ARG001, FBT001, FBT002
) -> Sorted:
    """The ``k`` largest elements along a dimension, and their indices, as ``torch.topk``.

    Of equal elements, those with the lowest indices are taken, and come first. Made for a ``k`` of
    up to 128; from 513 on, rows of more than 16,384 elements are sorted whole.

    Args:
        x: as ``sort`` takes it.
        k: from 0 to the size of the dimension.
        dim: which dimension is searched.
        largest: False for the smallest elements.
        sorted: taken for the sake of ``torch.topk``; the results are in order anyway.

    Returns:
        ``(values, indices)`` of the shape of ``x`` with ``k`` elements along ``dim``, as those of
        ``sort``.

    Raises:
        ValueError: as ``sort``, or ``k`` is not as above.
        IndexError: there is no dimension ``dim``.
        RuntimeError: CUDA refused the launch.
    """
    return _along(x, dim, k, largest)


def _along(x: torch.Tensor, dim: int, keep: int | None, descending: bool) -> Sorted:  # noqa: FBT001
    if x.dim() == 0:
        if dim not in {0, -1}:
            raise IndexError(f"bitonic_sort: dim must be -1 or 0 of a scalar, got {dim}")
        values, indices = _along(x.reshape(1), 0, keep, descending)
        return Sorted(values.reshape(()), indices.reshape(()))
    if not -x.dim() <= dim < x.dim():
        raise IndexError(
            f"bitonic_sort: dim must be from {-x.dim()} to {x.dim() - 1} of {list(x.shape)}, got "
            f"{dim}"
        )
    last = dim in {-1, x.dim() - 1}
    rows = x if last else x.movedim(dim, -1)
    keep = rows.shape[-1] if keep is None else keep
    # Forward mode as well: torch refuses it there, instead of tangents of zeros.
    if forward_ad._current_level >= 0 or (x.requires_grad and torch.is_grad_enabled()):
        values, indices = _Sort.apply(rows, keep, descending)
    else:
        values, indices = _sort(rows, keep, descending)
    if last:
        return Sorted(values, indices)
    return Sorted(values.movedim(-1, dim), indices.movedim(-1, dim))


class _Sort(torch.autograd.Function):
    """Of the last dimension. The gradient of an element goes to where the element came from."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, keep, descending):
        return _sort(x, keep, descending)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, indices = output
        ctx.mark_non_differentiable(indices)
        ctx.save_for_backward(indices)
        ctx.shape = inputs[0].shape

    @staticmethod
    def backward(ctx, grad, _):
        (indices,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).scatter(-1, indices, grad), None, None


@torch.library.register_fake(add_op_namespace_prefix("sort"))
def _sort_fake(
    x: torch.Tensor,
    keep: int,
    descending: bool,  # noqa: ARG001, FBT001
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the op checks when it runs, told already while a compiler traces."""
    torch._check(
        x.dtype in _DTYPES,
        lambda: f"bitonic_sort: x must be of a float type, an integer type or bool, got {x.dtype}",
    )
    torch._check(
        x.dim() >= 1, lambda: "bitonic_sort: x must have a dimension to sort, got a scalar"
    )
    torch._check(
        0 <= keep <= x.shape[-1],
        lambda: (
            f"bitonic_sort: k must be from 0 to the size of the dimension, {x.shape[-1]}, got "
            f"{keep}"
        ),
    )
    shape = (*x.shape[:-1], keep)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int64)


_DTYPES = {
    *(torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
}
