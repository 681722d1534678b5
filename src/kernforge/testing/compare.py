# SPDX-License-Identifier: Apache-2.0
"""Comparison of results with a reference, and the tolerance.

The tolerance comes from the reference's own error: the reference is computed in the tested dtype
and in float64. The error of a kernel may be ``FACTOR`` times the reference's error, plus one unit
in the last place:

    tolerance = FACTOR * min(largest error, largest error in ulps * ulp) + ulp

The largest error bounds elements that cancel, the largest error in ulps bounds small elements.
There is no higher precision than float64: for float64, the error of the reference in float32 is
scaled to float64's ulps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
FACTOR = 2.0
"""Allowed error of a kernel, as a multiple of the reference's own error."""


def ulp(value: Tensor, dtype: Any) -> Tensor:
    """Unit in the last place of ``dtype`` at each value.

    Args:
        value: float64 tensor of any shape; values that are not finite count as zero.

    Returns:
        float64 tensor of the same shape: the spacing of ``dtype`` at each value, with subnormals.
    """
    import torch

    info = torch.finfo(dtype)
    exponent = torch.frexp(torch.nan_to_num(value, 0.0, 0.0, 0.0).abs()).exponent.double()
    spacing = info.eps * torch.exp2(exponent - 1)
    return spacing.clamp(min=max(info.tiny * info.eps, 5e-324))


def tolerance(exact: Tensor, same: Tensor, dtype: Any, *, factor: float = FACTOR) -> Tensor:
    """The allowed absolute error of each element, by the rule of this module.

    Args:
        exact: the reference's result, computed in float64.
        same: the reference's result, computed in the tested dtype (in float32 for float64).
        factor: allowed multiple of the reference's own error.

    Returns:
        float64 tensor of the same shape: the largest allowed absolute difference to ``exact``.
    """
    import torch

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
    """The first wrong element of a result, and the number of wrong elements.

    Attributes:
        first: index of the first wrong element in row-major order.
        ulps: units in the last place between the two, and the allowed number; None if the result
            is not a float or must be equal bit for bit.
    """

    first: int
    got: Any
    wanted: Any
    ulps: tuple[float, float] | None
    count: int

    def after(self, earlier: Difference | None, *, at: int) -> Difference:
        """Combine the difference of a part that begins at an element with that of earlier parts."""
        if earlier is None:
            return replace(self, first=self.first + at)
        return replace(earlier, count=earlier.count + self.count)

    def text(self, what: str, shape: Sequence[int]) -> str:
        """The message, with the coordinate in a shape."""
        text = f"{what}{_coordinate(self.first, shape)}: got {self.got!r}, wanted {self.wanted!r}"
        if self.ulps is not None and math.isfinite(self.ulps[0]):
            text += f", {self.ulps[0]:.4g} ulps apart where {self.ulps[1]:.4g} are allowed"
        total = math.prod(shape)
        return f"{text} ({self.count} of {total} elements differ: {100 * self.count / total:.2g} %)"


def assert_near(
    got: Tensor, exact: Tensor, same: Tensor, *, what: str = "result", factor: float = FACTOR
) -> None:
    """Compare a result with its reference; NaN equals NaN, an infinity equals itself.

    Args:
        exact: the reference, computed in float64, or in the result's dtype if that is not a float.
        same: the reference, computed in the tested dtype (in float32 for float64).
        factor: allowed multiple of the reference's own error.

    Raises:
        AssertionError: shape or values differ; the message has the coordinate and value of the
            first wrong element, the expected value, the difference in ulps, and the share of wrong
            elements.
    """
    assert_shape(got.shape, exact.shape, what=what)
    if first_difference := difference(got, exact, same, factor=factor):
        raise AssertionError(first_difference.text(what, got.shape))


def assert_shape(got: Sequence[int], wanted: Sequence[int], *, what: str = "result") -> None:
    """Compare a result's shape with the reference's."""
    if tuple(got) != tuple(wanted):
        raise AssertionError(
            f"{what} has shape {tuple(got)}, wanted {tuple(wanted)} of the reference"
        )


def difference(
    got: Tensor, exact: Tensor, same: Tensor, *, factor: float = FACTOR
) -> Difference | None:
    """The first element that ``assert_near`` refuses; None if there is none."""
    import torch

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
    """Compare two results of the same computation bit for bit.

    Raises:
        AssertionError: shape, dtype or a byte differs; the message has the first such element.
    """
    import torch

    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        raise AssertionError(
            f"{what} is {got.dtype} {tuple(got.shape)}, wanted {wanted.dtype} {tuple(wanted.shape)}"
        )
    if not got.numel():
        return
    size = got.element_size()
    got_bytes = got.contiguous().view(-1).view(torch.uint8).view(-1, size)
    wanted_bytes = wanted.contiguous().view(-1).view(torch.uint8).view(-1, size)
    if first_difference := _first(
        (got_bytes != wanted_bytes).any(dim=1).view(got.shape), got, wanted
    ):
        raise AssertionError(first_difference.text(what, got.shape))


def _first(
    wrong: Tensor,
    got: Tensor,
    wanted: Tensor,
    *,
    judged: tuple[Tensor, Tensor, Tensor] | None = None,
) -> Difference | None:
    """The first wrong element; only its values are copied from the device."""
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
        first=first, got=got[place].item(), wanted=wanted[place].item(), ulps=ulps, count=count
    )


def _coordinate(flat: int, shape: Sequence[int]) -> list[int]:
    place = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        place.append(index)
    return place[::-1]
