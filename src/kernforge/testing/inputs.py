# SPDX-License-Identifier: Apache-2.0
"""Inputs of checks: shapes, layouts and values.

The author's ``inputs(draw, shape)`` makes the arguments of a case. The tensors of ``draw`` change
with the check: seeded numbers, a view that is not contiguous, NaN and infinities, guards around the
tensor. One function of the author serves all checks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernforge.compare import tensors
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
SHAPES: dict[str, tuple[int, ...]] = {
    "empty": (0,),
    "one element": (1,),
    "less than 16 bytes": (3,),
    "odd": (7, 13, 5),
    "several blocks and a rest": (67, 263),
}
"""The shapes of an operator that takes any shape."""

_DRAWN = 2**24 - 3  # larger tensors repeat these numbers, because they are drawn on the CPU
_TENSORS = 1000  # largest number of tensors of a case
MISALIGNED = tuple(range(1, 16))
"""Elements between an aligned address and the begin of a view."""
VIEWS = (
    *("transposed", "every second", "cropped", "one repeated"),
    *(f"{n} elements in" for n in MISALIGNED),
)
"""The layouts that every tensor argument gets."""
MIXED = ("transposed", "every second", "1 elements in")
"""The layouts that one argument gets while the others are contiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Makes the tensors of a case.

    Attributes:
        dtype: dtype of the tensors; a call may give another.
        seed: seed of the numbers, which are the same on every device.
        layout: a name of ``VIEWS``, or empty for contiguous tensors.
        only: index of the drawn tensor that gets the layout, from 0; None for all tensors.
        special: whether the values include NaN, infinities and other special numbers.
        place: moves a tensor, for example between guards; None does not move it.
        written: tensors that the operator writes to, made by ``out`` and ``inplace``.
        drawn: shapes that were drawn; the tensors of a case have different numbers.
    """

    device: str
    dtype: Any
    seed: int = 0
    layout: str = ""
    only: int | None = None
    special: bool = False
    place: Callable[[Tensor], Tensor] | None = None
    written: list[Tensor] = field(default_factory=list)
    drawn: list[tuple[int, ...]] = field(default_factory=list)

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """A tensor of normally distributed floats, or of integers from the dtype's whole range.

        Args:
            dtype: another dtype than the checked one, by name or as ``torch.dtype``.

        Raises:
            UsageError: torch has no such dtype, or it is complex.
        """
        import torch

        drawn_dtype = self.dtype
        if dtype is not None:
            name = str(dtype).removeprefix("torch.")
            check_dtype(name)
            drawn_dtype = getattr(torch, name)
        number = len(self.drawn)
        self.drawn.append(tuple(shape))
        tensor = self._numbers(shape, drawn_dtype, number)
        if self.special and drawn_dtype.is_floating_point:
            _make_special(tensor)
        tensor = tensor.to(self.device)
        if self.layout and self.only in (None, number):
            return view(tensor, self.layout)
        return tensor if self.place is None else self.place(tensor)

    def out(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """A contiguous tensor that the operator writes its result to; filled with 77 or -77."""
        tensor = self._written(shape, dtype, layout="")
        tensor.fill_(-77 if tensor.dtype.is_signed else 77)
        return tensor

    def inplace(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """A tensor of numbers that the operator changes in place."""
        return self._written(shape, dtype, layout=self.layout)

    def _written(self, shape: tuple[int, ...], dtype: Any, *, layout: str) -> Tensor:
        tensor = replace(self, layout=layout)(shape, dtype)
        self.written.append(tensor)
        return tensor

    def afresh(self) -> Draw:
        """The same settings, before any tensor was drawn."""
        return replace(self, written=[], drawn=[])

    def _numbers(self, shape: tuple[int, ...], dtype: Any, number: int) -> Tensor:
        import torch

        if (count := math.prod(shape)) > _DRAWN:
            period = self._numbers((_DRAWN,), dtype, number).to(self.device)
            return period.repeat(-(-count // _DRAWN))[:count].view(shape)
        limits = None, None
        if not (dtype.is_floating_point or dtype == torch.bool):
            info = torch.iinfo(dtype)
            limits = max(info.min, -(2**31)), min(info.max, 2**31) + 1
        generator = torch.Generator().manual_seed(_TENSORS * self.seed + number)
        return tensors.draw(shape, dtype, generator, *limits)


def check_dtype(name: str) -> None:
    """Check that torch has a dtype and that its results can be compared."""
    import torch

    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"torch has no dtype {name!r}", hint="use a name such as float32, bfloat16 or int64"
        )
    if dtype.is_complex:
        raise UsageError(
            f"the complex dtype {name} has no tolerance and cannot be checked",
            hint="declare the operator on its real and imaginary parts: "
            "call=lambda op, real, imaginary: "
            "torch.view_as_real(op(torch.complex(real, imaginary)))",
        )


def _make_special(tensor: Tensor) -> None:
    """Set every third element, up to a number of them, to a special value of arithmetic."""
    import torch

    info = torch.finfo(tensor.dtype)
    nan, inf = float("nan"), float("inf")
    values = (nan, inf, -inf, 0.0, -0.0, info.max, info.min, info.tiny, info.smallest_normal / 2)
    flat = tensor.view(-1)
    for index, value in enumerate(values * (1 + flat.numel() // 64)):
        if 3 * index < flat.numel():
            flat[3 * index] = value


def view(tensor: Tensor, layout: str) -> Tensor:
    """A contiguous tensor in another layout; ``one repeated`` repeats the first row."""
    if layout == "transposed":
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else _every_second(tensor)
    if layout == "every second":
        return _every_second(tensor)
    if layout == "cropped":
        return _cropped(tensor)
    if layout == "one repeated":
        return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.numel() else tensor
    offset = int(layout.partition(" ")[0])
    parent = tensor.new_zeros(tensor.numel() + offset)
    parent[offset:] = tensor.reshape(-1)
    return parent[offset:].view(tensor.shape)


def _every_second(tensor: Tensor) -> Tensor:
    if not tensor.dim():
        return tensor
    parent = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    parent[..., ::2] = tensor
    return parent[..., ::2]


def _cropped(tensor: Tensor) -> Tensor:
    """A part of a tensor that is larger in each dimension, by 1 element before and 2 after."""
    parent = tensor.new_zeros([size + 3 for size in tensor.shape])
    part = parent[tuple(slice(1, 1 + size) for size in tensor.shape)]
    return part.copy_(tensor)
