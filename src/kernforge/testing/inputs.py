# SPDX-License-Identifier: Apache-2.0
"""Inputs of checks: shapes, views and values, each with the regime that it stands for.

A case is made by the author's ``inputs(draw, shape)``. What ``draw`` gives changes with the check:
seeded numbers, a view that is not contiguous, values that are no numbers, a tensor with guards
around it. So one line of the author's serves all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernforge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

SHAPES: dict[str, tuple[int, ...]] = {
    "empty": (0,),
    "one element": (1,),
    "less than 16 bytes": (3,),
    "odd": (7, 13, 5),
    "several blocks and a rest": (67, 263),
}
"""The shapes of an operator that takes any."""

_DRAWN = 2**24 - 3  # more are these again: they are drawn on the CPU
_TENSORS = 1000  # of a case at most
MISALIGNED = tuple(range(1, 16))
"""Elements by which a view begins behind an aligned address."""
VIEWS = (
    *("transposed", "every second", "cropped", "one repeated"),
    *(f"{n} elements in" for n in MISALIGNED),
)
"""The layouts that every tensor argument is given."""
MIXED = ("transposed", "every second", "1 elements in")
"""Those of them that one argument is given beside others without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """Makes the tensors of a case.

    Attributes:
        device: where.
        dtype: of what is drawn unless the call says another.
        seed: the numbers are those of this seed, on every device the same.
        layout: a name of ``VIEWS``, or "" for contiguous ones.
        only: which drawn tensor has that layout, counted from 0; None is all of them.
        special: whether NaN, infinities and the like are among the values.
        place: puts a tensor elsewhere, as between guards; None leaves it.
        written: the tensors that the operator writes to, as ``out`` and ``inplace`` gave them.
        drawn: the shapes that were drawn; each tensor of a case has numbers of its own.
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
        """A tensor of normally distributed numbers, or of any integers of their dtype.

        Args:
            shape: its shape.
            dtype: another than the checked one, as a name or ``torch.dtype``.

        Raises:
            UsageError: torch has no such dtype, or no numbers are drawn of it.
        """
        import torch  # noqa: PLC0415 - torch is imported where it is used

        if isinstance(dtype, str):
            check_dtype(dtype)
            dtype = getattr(torch, dtype)
        wanted = self.dtype if dtype is None else dtype
        number = len(self.drawn)
        self.drawn.append(tuple(shape))
        made = self._numbers(shape, wanted, number)
        if self.special and wanted.is_floating_point:
            _make_special(made)
        made = made.to(self.device)
        if self.layout and self.only in (None, number):
            return view(made, self.layout)
        return made if self.place is None else self.place(made)

    def out(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """A contiguous tensor that the operator writes its result to; it holds no result yet."""
        made = self._written(shape, dtype, layout="")
        made.fill_(-77 if made.dtype.is_signed else 77)
        return made

    def inplace(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """A tensor of numbers that the operator changes in place."""
        return self._written(shape, dtype, layout=self.layout)

    def _written(self, shape: tuple[int, ...], dtype: Any, *, layout: str) -> Tensor:
        made = replace(self, layout=layout)(shape, dtype)
        self.written.append(made)
        return made

    def afresh(self) -> Draw:
        """The same before anything was drawn."""
        return replace(self, written=[], drawn=[])

    def _numbers(self, shape: tuple[int, ...], dtype: Any, number: int) -> Tensor:
        import torch  # noqa: PLC0415

        if (count := math.prod(shape)) > _DRAWN:
            period = self._numbers((_DRAWN,), dtype, number).to(self.device)
            return period.repeat(-(-count // _DRAWN))[:count].view(shape)
        source = torch.Generator().manual_seed(_TENSORS * self.seed + number)
        if dtype == torch.bool:
            return torch.randint(2, shape, generator=source).bool()
        if not dtype.is_floating_point:
            info = torch.iinfo(dtype)
            low, high = max(info.min, -(2**31)), min(info.max, 2**31)
            return torch.randint(low, high + 1, shape, generator=source).to(dtype)
        return torch.randn(shape, generator=source, dtype=torch.float64).to(dtype)


def check_dtype(name: str) -> None:
    """Refuse what is no dtype of torch, and one whose numbers have no order to be near in.

    Raises:
        UsageError: it is one of these.
    """
    import torch  # noqa: PLC0415

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"torch has no dtype {name!r}", hint="as in float32, bfloat16, int64")
    if found.is_complex:
        raise UsageError(
            f"{name} is not drawn and has no rule of how near is near enough",
            hint="declare the operator on its real and imaginary parts: "
            "call=lambda op, real, imaginary: torch.view_as_real(op(torch.complex(real, imaginary)))",
        )


def _make_special(tensor: Tensor) -> None:
    """Put the values that arithmetic treats apart at every third place or so."""
    import torch  # noqa: PLC0415

    info = torch.finfo(tensor.dtype)
    nan, inf = float("nan"), float("inf")
    values = (nan, inf, -inf, 0.0, -0.0, info.max, info.min, info.tiny, info.smallest_normal / 2)
    flat = tensor.view(-1)
    for at, value in enumerate(values * (1 + flat.numel() // 64)):
        if 3 * at < flat.numel():
            flat[3 * at] = value


def view(tensor: Tensor, layout: str) -> Tensor:
    """The same shape and values in another layout; "one repeated" repeats the first row.

    Args:
        tensor: contiguous.
        layout: a name of ``VIEWS``.
    """
    if layout == "transposed":
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else _every_second(tensor)
    if layout == "every second":
        return _every_second(tensor)
    if layout == "cropped":
        return _cropped(tensor)
    if layout == "one repeated":
        return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.numel() else tensor
    behind = int(layout.partition(" ")[0])
    parent = tensor.new_zeros(tensor.numel() + behind)
    parent[behind:] = tensor.reshape(-1)
    return parent[behind:].view(tensor.shape)


def _every_second(tensor: Tensor) -> Tensor:
    if not tensor.dim():
        return tensor
    parent = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1])
    parent[..., ::2] = tensor
    return parent[..., ::2]


def _cropped(tensor: Tensor) -> Tensor:
    """Out of the middle of a tensor that is larger in each dimension, by 1 before and 2 after."""
    parent = tensor.new_zeros([size + 3 for size in tensor.shape])
    part = parent[tuple(slice(1, 1 + size) for size in tensor.shape)]
    return part.copy_(tensor)
