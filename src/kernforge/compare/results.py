# SPDX-License-Identifier: Apache-2.0
"""Comparison of results with a reference, and the tolerance.

An element is right when it is what the reference rounds to, or when it is finite and its error is
within the tolerance. Integers must be equal.

The tolerance of a test comes from the reference's own error: the reference is computed in the
tested dtype and in float64. The error of a kernel may be ``FACTOR`` times the reference's error,
plus one unit in the last place:

    tolerance = FACTOR * min(largest error, largest error in ulps * ulp) + ulp

The largest error bounds elements that cancel, the largest error in ulps bounds small elements.
There is no higher precision than float64: for float64, the error of the reference in float32 is
scaled to float64's ulps.

That of a benchmark, whose reference is computed in higher precision alone, is a share of the
expected value plus the root mean square of all expected values.
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
_PART = 1 << 24


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
    if wrong := difference(got, exact, same, factor=factor):
        raise AssertionError(wrong.text(what, got.shape))


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
    if not got.is_floating_point():
        return _outside(got, exact, 0.0)
    allowed = tolerance(exact.double(), same, got.dtype, factor=factor)
    return _outside(got, exact, allowed, same.to(got.dtype))


def difference_by_share(got: Tensor, exact: Tensor, share: float) -> Difference | None:
    """The first element of a result that a benchmark refuses; None if there is none.

    Args:
        exact: the reference of the same shape, in the result's dtype or a higher precision.
        share: allowed error, as a share of the expected value plus the root mean square of all.
    """
    allowed = share if got.is_floating_point() or got.is_complex() else 0.0
    parts = [_wide(part) for part in exact.reshape(-1).split(_PART)]  # so that copies stay small
    squares = sum(float(p[p.isfinite()].abs().double().square().sum()) for p in parts)
    size = math.sqrt(squares / max(1, sum(int(p.isfinite().sum()) for p in parts)))
    wrong = None
    for number, (mine, right) in enumerate(zip(got.reshape(-1).split(_PART), parts, strict=True)):
        if part := _outside(mine, right, allowed * (right.abs() + size)):
            wrong = part.after(wrong, at=number * _PART)
    return wrong


def _wide(tensor: Tensor) -> Tensor:
    import torch

    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)


def _outside(
    got: Tensor, exact: Tensor, allowed: Any, same: Tensor | None = None
) -> Difference | None:
    """The first element that is outside a tolerance; None if there is none.

    Args:
        allowed: the largest absolute error of each element, a tensor for floats.
        same: the reference in the result's dtype, which may overflow before the exact one.
    """
    mine, rounded = _wide(got), exact.to(got.dtype)
    exact, wanted = exact.to(mine.dtype), _wide(rounded)
    off, finite = (mine - exact).abs(), exact.isfinite()
    right = (mine == wanted) | (mine.isnan() & wanted.isnan()) | (finite & (off <= allowed))
    if same is not None:
        right |= finite & same.isinf() & (got == same)
    judged = (off, allowed, exact) if got.is_floating_point() else ()
    return _first(~right, got, rounded, judged)


def assert_bitwise(got: Tensor, wanted: Tensor, *, what: str = "result") -> None:
    """Compare two results of the same computation bit for bit.

    Raises:
        AssertionError: shape, dtype or a byte differs; the message has the first such element.
    """
    if text := bitwise_difference(got, wanted, what):
        raise AssertionError(text)


def bitwise_difference(got: Tensor, wanted: Tensor, what: str) -> str:
    """The first difference of two tensors in shape, dtype or a byte; "" if there is none."""
    import torch

    if (got.shape, got.dtype) != (wanted.shape, wanted.dtype):
        return (
            f"{what} is {got.dtype} {tuple(got.shape)}, wanted {wanted.dtype} {tuple(wanted.shape)}"
        )
    mine, right = (each.contiguous().view(-1).view(torch.uint8) for each in (got, wanted))
    if torch.equal(mine, right):
        return ""
    wrong = (mine != right).view(-1, got.element_size()).any(dim=1).view(got.shape)
    first_difference = _first(wrong, got, wanted)
    return first_difference.text(what, got.shape) if first_difference else ""


def _first(
    wrong: Tensor, got: Tensor, wanted: Tensor, judged: tuple[Tensor, ...] = ()
) -> Difference | None:
    """The first wrong element; only its values are copied from the device."""
    count = int(wrong.sum())
    if not count:
        return None
    first = int(wrong.reshape(-1).int().argmax())
    place = tuple(_coordinate(first, got.shape))
    ulps = None
    if judged:
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
