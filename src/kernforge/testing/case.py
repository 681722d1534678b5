# SPDX-License-Identifier: Apache-2.0
"""An author's declaration of an operator, a trial of it, and a case: arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernforge.compare.results import FACTOR, assert_near, bitwise_difference
from kernforge.compare.tensors import as_tuple, is_tensor
from kernforge.errors import UsageError
from kernforge.testing import guards
from kernforge.testing.inputs import SHAPES, VIEWS, Draw, check_dtype

if TYPE_CHECKING:
    from torch import Tensor

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
_DEVICES = ("cpu", "cuda")
_GIVEN = ("op", "reference", "inputs")
_CONVERTS = (
    "; the reference computes in a higher precision than the tested dtype, so that its own error is"
    " unknown and no more than the rounding of a result is allowed: leave its .double() out"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpDeclaration:
    """An operator to check.

    Attributes:
        call: function of the operator and the arguments that makes the call; None for
            ``op(*arguments)``.
        devices: types of the devices that the operator runs on, ``cpu`` and ``cuda``.
        views: names of the layouts that the operator takes, of ``VIEWS``.
        backward: whether the operator has a first derivative.
        second_backward: whether the operator has a second derivative.
        elementwise: whether each element of the result depends only on the same element of each
            input.
        rowwise: whether each row of the result (index of the first dimension) depends only on the
            same row of each input.
        large: a shape of more than 2^31 elements, for GPUs; None without such inputs.
        factor: allowed error, as a multiple of the reference's own error.
        leave_out: checks that do not apply, with the reason of each, which is shown.
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
    factor: float = FACTOR
    leave_out: Mapping[str, str] = field(default_factory=dict)

    def expected(self, args: tuple[Any, ...]) -> tuple[tuple[Tensor, Tensor], ...]:
        """The reference's results: each computed in float64, and computed in the tested dtype."""
        import torch

        floats = [a.dtype for a in args if is_tensor(a) and a.is_floating_point()]
        same = torch.float32 if torch.float64 in floats else None
        exact = _results(self.reference(*copies(args, torch.float64)))
        coarse = _results(self.reference(*(copies(args, same) if same else args)))
        return tuple(zip(exact, coarse, strict=True))


def check_options(options: Mapping[str, Any], checks: Collection[str]) -> dict[str, Any]:
    """The options of ``op_tests`` as attributes of ``OpDeclaration``, checked.

    A single name becomes a tuple, and ``torch.float32`` its name.
    """
    _among("option", options, {name for name in OpDeclaration.__slots__ if name not in _GIVEN})
    settings = dict(options)
    for name in sorted({"dtypes", "devices", "views"} & settings.keys()):
        value = settings[name]
        several = not isinstance(value, str) and hasattr(value, "__iter__")
        names = tuple(str(each).removeprefix("torch.") for each in (value if several else (value,)))
        if not names and name != "views":
            raise UsageError(
                f"{name} is empty, so that nothing would be checked", hint="give at least one name"
            )
        settings[name] = names
    for name in settings.get("dtypes", ()):
        check_dtype(name)
    _among("device", settings.get("devices", ()), _DEVICES)
    _among("view", settings.get("views", ()), VIEWS)
    _among("check", settings.get("leave_out", {}), checks)
    return settings


def _among(what: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(
                f"there is no {what} {name!r}", hint=f"use one of {', '.join(sorted(known))}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The arguments of one call of an operator, and which of them it writes.

    Attributes:
        before: copies of the arguments before the call, for the reference.
        written: indices of the arguments that are results.
        guarded: the drawn tensors that have guards around them.
    """

    declared: OpDeclaration
    args: tuple[Any, ...]
    before: tuple[Any, ...]
    written: frozenset[int]
    guarded: tuple[guards.Guarded, ...] = ()

    def broken(self) -> str:
        """Describe a write around an argument; empty if there was none."""
        for number, guarded in enumerate(self.guarded):
            if text := guarded.broken():
                return f"around drawn tensor {number}: {text}"
        return ""

    def results(self, returned: Any) -> tuple[Tensor, ...]:
        """The arguments that were written, then the other tensors that were returned."""
        written = [self.args[at] for at in sorted(self.written)]
        others = [
            r
            for r in as_tuple(returned)
            if is_tensor(r) and not any(r is tensor for tensor in written)
        ]
        return (*written, *others)

    def check(self, returned: Any) -> None:
        """Compare the results of a call with the reference's."""
        self.compare(self.results(returned))

    def compare(self, results: tuple[Tensor, ...]) -> None:
        """Compare results with the reference's results for the arguments before the call."""
        import torch

        pairs = self.declared.expected(self.before)
        # A reference that computes in a higher precision throughout does not determine the dtype.
        taken = {a.dtype for a in self.before if is_tensor(a)}
        if len(results) != len(pairs):
            raise AssertionError(
                f"the operator has {len(results)} results, the reference {len(pairs)}: written "
                "arguments come first, then what is returned"
            )
        for number, (result, (exact, same)) in enumerate(zip(results, pairs, strict=True)):
            what = "result" if len(results) == 1 else f"result {number}"
            any_dtype = result.is_floating_point() and same.dtype not in taken
            if result.dtype != same.dtype and not any_dtype:
                raise AssertionError(f"{what} is {result.dtype}, wanted {same.dtype}")
            if result.device != exact.device:
                raise AssertionError(f"{what} is on {result.device}, wanted {exact.device}")
            values = (each.detach() for each in (result, exact, same))
            try:
                assert_near(*values, what=what, factor=self.declared.factor)
            except AssertionError as error:
                converts = any_dtype and torch.finfo(same.dtype).eps < torch.finfo(result.dtype).eps
                raise AssertionError(f"{error}{_CONVERTS if converts else ''}") from None

    def inputs_changed(self) -> str:
        """Describe an argument that was changed but is not a result; empty if there is none."""
        text = ""
        for at, (now, then) in enumerate(zip(self.args, self.before, strict=True)):
            if is_tensor(now) and at not in self.written:
                text = text or bitwise_difference(now, then, f"argument {at}")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One call to check: an operator, and the arguments to draw for it."""

    declared: OpDeclaration
    op: Callable[..., Any]
    draw: Draw
    shape: tuple[int, ...]

    def drawn(self, **settings: Any) -> Trial:
        """The same trial with other settings of ``Draw``."""
        return replace(self, draw=replace(self.draw, **settings))

    def case(self, *, keep: bool = True) -> Case:
        """Draw the arguments.

        Args:
            keep: whether to copy arguments that are not results, too; without copies they are
                assumed to be unchanged, which saves memory.
        """
        draw = self.draw.afresh()
        args = self.declared.inputs(draw, self.shape)
        if not isinstance(args, tuple | list):
            raise UsageError(
                f"inputs returns a {type(args).__name__}, not a tuple",
                hint="return all arguments of the operator: lambda draw, shape: (draw(shape),)",
            )
        written = {
            index for index, a in enumerate(args) if any(a is tensor for tensor in draw.written)
        }
        before = tuple(
            a.clone() if is_tensor(a) and (keep or index in written) else a
            for index, a in enumerate(args)
        )
        return Case(
            declared=self.declared, args=tuple(args), before=before, written=frozenset(written)
        )

    def guarded_case(self, filled: int) -> Case:
        """Draw the arguments with guards around them, filled with a byte value."""
        guarded: list[guards.Guarded] = []

        def place(tensor: Tensor) -> Tensor:
            guarded.append(guards.surround(tensor, filled=filled))
            return guarded[-1].tensor

        return replace(self.drawn(place=place).case(), guarded=tuple(guarded))


def copies(args: tuple[Any, ...], dtype: Any = None) -> tuple[Any, ...]:
    """Copies of the arguments; with a dtype, their floats are converted to it."""
    return tuple(
        (a.to(dtype) if dtype and a.is_floating_point() else a).clone() if is_tensor(a) else a
        for a in args
    )


def _results(returned: Any) -> tuple[Tensor, ...]:
    """The tensors that a reference returns."""
    values = as_tuple(returned)
    if others := [type(value).__name__ for value in values if not is_tensor(value)]:
        raise UsageError(
            f"the reference returns a {others[0]}, not a tensor",
            hint="return a tensor or a tuple of tensors: first those that the operator writes to",
        )
    return values
