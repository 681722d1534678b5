# SPDX-License-Identifier: Apache-2.0
"""What an author declares of an operator, and how one case of it is run and judged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernforge.errors import UsageError
from kernforge.testing import compare, guards
from kernforge.testing.inputs import SHAPES, VIEWS, Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An operator to be checked.

    Attributes:
        op: a callable, or the name of an attribute of the tested build, as ``"relu"``.
        call: how it is called with the arguments; None is ``op(*arguments)``.
        reference: the same in plain torch; takes the same arguments and returns the results.
        inputs: makes the arguments of a case from ``draw`` and a shape.
        shapes: name to shape, each with the regime that it stands for.
        dtypes: names of the dtypes that the operator takes.
        devices: where it runs.
        views: the layouts that it takes, of ``VIEWS``.
        backward: whether it has a first derivative.
        second_backward: whether it has a second one.
        elementwise: whether each element of the result depends on that place of the inputs alone.
        rowwise: whether that is so of each index of the first dimension.
        large: a shape of more than 2^31 elements; None where the operator has no such inputs.
        factor: of the reference's own error that is allowed.
        leave_out: checks that do not apply, each with the reason, which is shown.
    """

    op: str | Callable[..., Any]
    reference: Callable[..., Any]
    inputs: Callable[[Draw, tuple[int, ...]], tuple[Any, ...]]
    call: Callable[..., Any] | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: SHAPES)
    dtypes: tuple[str, ...] = ("float32",)
    devices: tuple[str, ...] = ("cpu", "cuda")
    views: tuple[str, ...] = VIEWS
    backward: bool = False
    second_backward: bool = False
    elementwise: bool = False
    rowwise: bool = False
    large: tuple[int, ...] | None = None
    factor: float = compare.FACTOR
    leave_out: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call of an operator: its arguments, and which of them it writes.

    Attributes:
        args: what the operator is called with.
        before: the same arguments as they were, for the reference.
        written: which arguments are results.
    """

    args: tuple[Any, ...]
    before: tuple[Any, ...]
    written: frozenset[int]

    @classmethod
    def make(
        cls, declared: Declared, draw: Draw, shape: tuple[int, ...], *, keep: bool = True
    ) -> Case:
        """Draw the arguments of a shape.

        Args:
            declared: the operator.
            draw: how.
            shape: of the case.
            keep: whether arguments that are no results are kept as they were, too; without it they
                are trusted to be unchanged, which saves their memory.

        Raises:
            UsageError: the author's ``inputs`` returns no tuple.
        """
        draw = draw.afresh()
        args = declared.inputs(draw, shape)
        if not isinstance(args, tuple | list):
            raise UsageError(
                f"inputs returns a {type(args).__name__}",
                hint="it returns all arguments of the operator: lambda draw, shape: (draw(shape),)",
            )
        written = {at for at, a in enumerate(args) if any(a is one for one in draw.written)}
        before = tuple(
            a.clone() if is_tensor(a) and (keep or at in written) else a
            for at, a in enumerate(args)
        )
        return cls(args=tuple(args), before=before, written=frozenset(written))

    def results(self, returned: Any) -> tuple[Tensor, ...]:
        """The arguments that were written, then what was returned beside them."""
        mine = [self.args[at] for at in sorted(self.written)]
        every = returned if isinstance(returned, (tuple, list)) else (returned,)
        others = [r for r in every if is_tensor(r) and not any(r is one for one in mine)]
        return (*mine, *others)

    def inputs_changed(self) -> str:
        """Which argument is not what it was, though it is no result; "" when none is."""
        for at, (now, then) in enumerate(zip(self.args, self.before, strict=True)):
            if is_tensor(now) and at not in self.written:
                try:
                    compare.assert_bitwise(now, then, what=f"argument {at}")
                except AssertionError as error:
                    return str(error)
        return ""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    return isinstance(value, torch.Tensor)


def copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments in memory of their own."""
    return tuple(a.clone() if is_tensor(a) else a for a in args)


def converted(args: tuple[Any, ...], dtype: Any) -> tuple[Any, ...]:
    """The arguments with their floats in another dtype, in memory of their own."""
    return tuple(
        (a.to(dtype) if a.is_floating_point() else a).clone() if is_tensor(a) else a for a in args
    )


def wanted(declared: Declared, args: tuple[Any, ...]) -> tuple[tuple[Tensor, Tensor], ...]:
    """What the reference gives: each result in float64, and as the tested dtype computes it."""
    import torch  # noqa: PLC0415

    floats = [a.dtype for a in args if is_tensor(a) and a.is_floating_point()]
    same = torch.float32 if torch.float64 in floats else None
    exact = _results(declared.reference(*converted(args, torch.float64)))
    coarse = _results(declared.reference(*(converted(args, same) if same else args)))
    return tuple(zip(exact, coarse, strict=True))


def assert_case(declared: Declared, case: Case, returned: Any) -> None:
    """Hold what a call gave against the reference.

    Raises:
        AssertionError: another number of results, or one of them differs.
    """
    assert_results(declared, case.before, case.results(returned))


def assert_results(declared: Declared, before: tuple[Any, ...], got: tuple[Tensor, ...]) -> None:
    """Hold results against what the reference makes of the arguments as they were.

    Raises:
        AssertionError: as ``assert_case``.
    """
    pairs = wanted(declared, before)
    # A reference that computes in a higher precision throughout says nothing of the dtype.
    taken = {a.dtype for a in before if is_tensor(a)}
    if len(got) != len(pairs):
        raise AssertionError(
            f"the operator has {len(got)} results, the reference {len(pairs)}: written arguments "
            "come first, then what is returned"
        )
    for number, (mine, (exact, same)) in enumerate(zip(got, pairs, strict=True)):
        what = "result" if len(got) == 1 else f"result {number}"
        if mine.dtype != same.dtype and (not mine.is_floating_point() or same.dtype in taken):
            raise AssertionError(f"{what} is {mine.dtype}, wanted {same.dtype}")
        if mine.device != exact.device:
            raise AssertionError(f"{what} is on {mine.device}, wanted {exact.device}")
        compare.assert_near(
            mine.detach(), exact.detach(), same.detach(), what=what, factor=declared.factor
        )


def _results(returned: Any) -> tuple[Tensor, ...]:
    """What a reference returns, which must be tensors."""
    every = returned if isinstance(returned, (tuple, list)) else (returned,)
    if strange := [type(one).__name__ for one in every if not is_tensor(one)]:
        raise UsageError(
            f"the reference returns a {strange[0]}",
            hint="it returns a tensor or a tuple of them: first what the operator writes to",
        )
    return tuple(every)


def guarded(declared: Declared, draw: Draw, shape: tuple[int, ...], filled: int) -> Between:
    """A case whose arguments lie between guards of one byte value."""
    around: list[guards.Guarded] = []

    def place(tensor: Tensor) -> Tensor:
        one = guards.surround(tensor, filled=filled)
        around.append(one)
        return one.tensor

    case = Case.make(declared, replace(draw, place=place), shape)
    return Between(case=case, around=tuple(around))


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A case, and the guards around its arguments."""

    case: Case
    around: tuple[guards.Guarded, ...]

    def broken(self) -> str:
        """What was written around an argument; "" when nothing was."""
        for number, one in enumerate(self.around):
            if text := one.broken():
                return f"around drawn tensor {number}: {text}"
        return ""
