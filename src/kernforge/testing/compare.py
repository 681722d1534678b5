# SPDX-License-Identifier: Apache-2.0
"""How near a result must be to its reference, and where it is not.

The tolerance is the reference's own error: it is evaluated in the tested dtype and in float64, and
what it loses is what a kernel may lose, times ``FACTOR``, and one unit in the last place beside:

    tolerance = FACTOR * min(largest error, largest error in ulps * ulp) + ulp

The largest error bounds elements that cancel, the largest in ulps those that are small. float64 has
no higher precision here: its reference is exact but for what float32 loses, in float64's ulps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

FACTOR = 2.0
"""How many times the reference's own error a kernel may be off."""


def ulp(value: Tensor, dtype: Any) -> Tensor:
    """Unit in the last place of ``dtype`` at each value.

    Args:
        value: float64, any shape; what is not finite is taken for zero.
        dtype: a floating dtype.

    Returns:
        float64 of the same shape: the spacing of ``dtype`` at the value, subnormals included.
    """
    import torch  # noqa: PLC0415 - torch is imported where it is used

    info = torch.finfo(dtype)
    exponent = torch.frexp(torch.nan_to_num(value, 0.0, 0.0, 0.0).abs()).exponent.double()
    spacing = info.eps * torch.exp2(exponent - 1)
    return spacing.clamp(min=max(info.tiny * info.eps, 5e-324))


def tolerance(exact: Tensor, same: Tensor, dtype: Any, *, factor: float = FACTOR) -> Tensor:
    """What each element may be off, by the rule of this module.

    Args:
        exact: the reference's result in float64.
        same: its result when it computes in the tested dtype, or in float32 for float64.
        dtype: the tested result's, a floating one.
        factor: of the reference's own error.

    Returns:
        float64 of the same shape: how far from ``exact`` each element may lie, as a number and not
        as a share of it.
    """
    import torch  # noqa: PLC0415

    step = ulp(exact, dtype)
    seen = same.dtype if same.is_floating_point() else dtype
    judged = seen if dtype == torch.float64 else dtype
    error = torch.nan_to_num((same.to(judged).double() - exact).abs(), 0.0, 0.0, 0.0)
    if not error.numel():
        return step
    in_ulps = (error / ulp(exact, judged)).max()
    scale = torch.finfo(dtype).eps / torch.finfo(judged).eps
    return factor * torch.minimum(error.max() * scale, in_ulps * step) + step


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a result is not what it should be.

    Attributes:
        first: the first wrong element, counted in row-major order.
        got: what it is.
        wanted: what it should be.
        ulps: units in the last place between them, and how many are allowed; None if the result is
            no float, or is to be equal in its bits.
        count: how many elements are wrong.
    """

    first: int
    got: Any
    wanted: Any
    ulps: tuple[float, float] | None
    count: int

    def after(self, earlier: Difference | None, *, at: int) -> Difference:
        """This one of a part that begins at an element, and that of the parts before it."""
        if earlier is None:
            return replace(self, first=self.first + at)
        return replace(earlier, count=earlier.count + self.count)

    def text(self, what: str, shape: Sequence[int]) -> str:
        """A sentence with the coordinate in a shape."""
        told = f"{what}{_coordinate(self.first, shape)}: got {self.got!r}, wanted {self.wanted!r}"
        if self.ulps is not None and math.isfinite(self.ulps[0]):
            told += f", {self.ulps[0]:.4g} ulps apart where {self.ulps[1]:.4g} are allowed"
        of = math.prod(shape)
        return f"{told} ({self.count} of {of} elements differ: {100 * self.count / of:.2g} %)"


def assert_near(
    got: Tensor, exact: Tensor, same: Tensor, *, what: str = "result", factor: float = FACTOR
) -> None:
    """Hold a result against its reference; NaN is equal to NaN, and infinities to themselves.

    Args:
        got: what the kernel gave.
        exact: the reference in float64, or in the result's own dtype where that is no float.
        same: the reference in the tested dtype; see ``tolerance``.
        what: how the message calls the result.
        factor: of the reference's own error.

    Raises:
        AssertionError: shape or values differ; it names the first element that does, with its
            coordinate, what was got, what was wanted, how many ulps lie between, and the share of
            elements that differ.
    """
    assert_shape(got.shape, exact.shape, what=what)
    if found := difference(got, exact, same, factor=factor):
        raise AssertionError(found.text(what, got.shape))


def assert_shape(got: Sequence[int], wanted: Sequence[int], *, what: str = "result") -> None:
    """Hold a result's shape against the reference's.

    Raises:
        AssertionError: it is another.
    """
    if tuple(got) != tuple(wanted):
        raise AssertionError(
            f"{what} has shape {tuple(got)}, wanted {tuple(wanted)} of the reference"
        )


def difference(
    got: Tensor, exact: Tensor, same: Tensor, *, factor: float = FACTOR
) -> Difference | None:
    """Where a result is too far from its reference, by the rule of this module.

    Args:
        got: what the kernel gave.
        exact: see ``assert_near``; of the same shape.
        same: see ``assert_near``.
        factor: of the reference's own error.
    """
    import torch  # noqa: PLC0415

    if not got.is_floating_point():
        return _first(got != exact.to(got.dtype), got, exact.to(got.dtype))
    exact = exact.double()
    rounded = exact.to(got.dtype)
    allowed = tolerance(exact, same, got.dtype, factor=factor)
    finite = rounded.isfinite()
    off = (got.double() - exact).abs()
    equal = (got == rounded) | (got.isnan() & rounded.isnan())
    # Near the largest number the reference in the tested dtype may overflow first.
    early = finite & same.to(got.dtype).isinf() & (got == same.to(got.dtype))
    wrong = ~torch.where(finite, (off <= allowed) | early, equal)
    return _first(wrong, got, rounded, judged=(off, allowed, exact))


def assert_bitwise(got: Tensor, wanted: Tensor, *, what: str = "result") -> None:
    """Hold a result against another of the same computation, bit for bit.

    Raises:
        AssertionError: a byte differs; it names the first element where one does.
    """
    import torch  # noqa: PLC0415

    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        raise AssertionError(
            f"{what} is {got.dtype} {tuple(got.shape)}, wanted {wanted.dtype} {tuple(wanted.shape)}"
        )
    if not got.numel():
        return
    size = got.element_size()
    ours = got.contiguous().view(-1).view(torch.uint8).view(-1, size)
    theirs = wanted.contiguous().view(-1).view(torch.uint8).view(-1, size)
    if found := _first((ours != theirs).any(dim=1).view(got.shape), got, wanted):
        raise AssertionError(found.text(what, got.shape))


def _first(
    wrong: Tensor,
    got: Tensor,
    wanted: Tensor,
    *,
    judged: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Difference | None:
    """The first element that is wrong; only its own values leave the device."""
    count = int(wrong.sum())
    if not count:
        return None
    first = int(wrong.reshape(-1).int().argmax())
    place = tuple(_coordinate(first, got.shape))
    ulps = None
    if judged is not None:
        off, allowed, exact = (part[place] for part in judged)
        step = ulp(exact, got.dtype)
        ulps = ((off / step).item(), (allowed / step).item())
    return Difference(
        first=first,
        got=got[place].item(),
        wanted=wanted[place].item(),
        ulps=ulps,
        count=count,
    )


def _coordinate(flat: int, shape: Sequence[int]) -> list[int]:
    place = []
    for size in reversed(shape):
        flat, at = divmod(flat, size)
        place.append(at)
    return place[::-1]
