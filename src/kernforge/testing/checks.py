# SPDX-License-Identifier: Apache-2.0
"""The checks of an operator, each a test of its own that ``pytest -k`` can choose."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from kernforge.errors import UsageError
from kernforge.testing import case as cases
from kernforge.testing import compare, gpu, guards, large
from kernforge.testing import torch_contract as torchside
from kernforge.testing.inputs import MIXED, Draw

if TYPE_CHECKING:
    from kernforge.testing.case import Declared

_RUNS = 5
_GRAD_ELEMENTS = 1000
_QUICK_ELEMENTS = 2**17
_ON_GPU = ("cuda_graph", "side_stream", "second_device", "sanitizer")


class Checks:
    """Every check of one operator; ``op_tests`` makes a class of it for each."""

    declared: ClassVar[Declared]
    _right: ClassVar[dict[Any, bool]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each check the devices, dtypes, shapes and so on that it is about."""
        one, name = metafunc.cls.declared, metafunc.function.__name__.removeprefix("test_")
        devices = [d for d in one.devices if d == "cuda" or name not in _ON_GPU]
        marks = {"cuda": [pytest.mark.gpu]}
        values = {
            "shape": [pytest.param(s, id=n) for n, s in one.shapes.items()],
            "view": list(one.views),
            "dtype": list(one.dtypes),
            "part": list(torchside.OPCHECKS),
            "tool": metafunc.config.getoption("sanitizer", None) or [""],
            "device": [pytest.param(d, marks=marks.get(d, [])) for d in devices],
        }
        for argument, chosen in values.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, chosen)

    @pytest.fixture(autouse=True)
    def _fits(self, request: pytest.FixtureRequest) -> None:
        """Leave out what the author says, and what this machine cannot run; both are shown."""
        name = request.function.__name__.removeprefix("test_")
        if name in self.declared.leave_out:
            pytest.skip(self.declared.leave_out[name])
        if request.node.callspec.params.get("device") == "cuda":
            gpu.need()

    @pytest.fixture
    def op(self, request: pytest.FixtureRequest, device: str) -> Any:
        """The operator: what was declared, or that attribute of the tested build."""
        del device
        found = self.declared.op
        if isinstance(found, str):
            found = _attribute(request.getfixturevalue("kernel"), found)
        call = self.declared.call
        return found if call is None else functools.partial(call, found)

    # -- values ----------------------------------------------------------------------------

    def test_values(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """Every shape gives the reference's values; new memory held poison before."""
        self._assert_values(op, self._draw(dtype, device), shape)

    def test_special_values(self, op: Any, dtype: str, device: str) -> None:
        """NaN, infinities, negative zero, the largest and the smallest numbers."""
        self._need_values(op, self._draw(dtype, device), self._shape())
        draw = self._draw(dtype, device, special=True)
        case = cases.Case.make(self.declared, draw, self._shape())
        cases.assert_case(self.declared, case, _held(op, case))

    def test_views(self, op: Any, view: str, dtype: str, device: str) -> None:
        """Arguments that are not contiguous, or begin at any element behind an aligned address."""
        self._need_values(op, self._draw(dtype, device), self._shape())
        draw = self._draw(dtype, device, layout=view)
        case = cases.Case.make(self.declared, draw, self._shape())
        cases.assert_case(self.declared, case, _held(op, case))

    def test_mixed_views(self, op: Any, dtype: str, device: str) -> None:
        """One tensor has another layout than the others, each in its turn."""
        self._need_values(op, self._draw(dtype, device), self._shape())
        count = self._count_drawn()
        if count == 1:
            pytest.skip("there is a single tensor: see test_views")
        for layout in [v for v in MIXED if v in self.declared.views]:
            for number in range(count):
                draw = self._draw(dtype, device, layout=layout, only=number)
                case = cases.Case.make(self.declared, draw, self._shape())
                try:
                    cases.assert_case(self.declared, case, _held(op, case))
                except AssertionError as error:
                    raise AssertionError(f"drawn tensor {number} {layout}: {error}") from error

    def test_more_than_2_to_the_31_elements(self, op: Any, device: str) -> None:
        """Indices need 64 bits; runs where there is memory for it."""
        if self.declared.large is None:
            pytest.skip("no shape of more than 2^31 elements is declared (large=)")
        draw = self._draw(self.declared.dtypes[0], device)
        self._need_values(op, draw, self._shape())
        with large.alone(device):
            large.need_memory(self.declared, op, draw, self._shape())
            large.assert_large(self.declared, op, draw)

    # -- memory ----------------------------------------------------------------------------

    def test_sentinels(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """Nothing is written before or after an argument or a result."""
        between = cases.guarded(self.declared, self._draw(dtype, device), shape, guards.POISON)
        _, watch = guards.watched(lambda: op(*between.case.args))
        if text := between.broken() or watch.broken():
            raise AssertionError(text)

    def test_neighbours(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """What lies around the arguments does not matter; here it is NaN or -1."""
        self._need_values(op, self._draw(dtype, device), shape)
        between = cases.guarded(self.declared, self._draw(dtype, device), shape, 0xFF)
        cases.assert_case(self.declared, between.case, _held(op, between.case))

    def test_inputs_untouched(self, op: Any, dtype: str, device: str) -> None:
        """An argument that is no result is bit for bit what it was."""
        case = cases.Case.make(self.declared, self._draw(dtype, device), self._shape())
        _held(op, case)
        if text := case.inputs_changed():
            raise AssertionError(text)

    def test_determinism(self, op: Any, dtype: str, device: str) -> None:
        """Equal arguments give equal bits, run after run."""
        first: tuple[Any, ...] | None = None
        for run in range(_RUNS):
            case = cases.Case.make(self.declared, self._draw(dtype, device), self._shape())
            got = case.results(_held(op, case))
            first = first or tuple(result.clone() for result in got)
            for mine, before in zip(got, first, strict=True):
                compare.assert_bitwise(mine, before, what=f"run {run + 1} beside run 1")

    # -- what torch is told ----------------------------------------------------------------

    def test_opcheck(self, op: Any, part: str, device: str) -> None:
        """``torch.library.opcheck`` on each custom operator that is reached."""
        draw = self._draw(self.declared.dtypes[0], device)
        if part == "aot":  # compares results
            self._need_values(op, draw, self._shape())
        torchside.opcheck(self.declared, op, draw, self._shape(), part)

    def test_compile(self, op: Any, device: str) -> None:
        """``torch.compile`` takes it whole, and equal shapes are not compiled again."""
        draw = self._draw(self.declared.dtypes[0], device)
        self._need_values(op, draw, self._shape())
        torchside.assert_compiles(self.declared, op, draw, self._shape())

    def test_gradients(self, op: Any, dtype: str, device: str) -> None:
        """The first derivative: gradcheck in float64, the reference's in other dtypes."""
        if not self.declared.backward:
            pytest.skip("no backward is declared (backward=True)")
        draw = self._draw(dtype, device)
        torchside.assert_gradients(self.declared, op, draw, self._small(), order=1)

    def test_compiled_gradients(self, op: Any, device: str) -> None:
        """``torch.compile`` takes the derivative with it."""
        if not self.declared.backward:
            pytest.skip("no backward is declared (backward=True)")
        draw = self._draw(self.declared.dtypes[0], device)
        self._need_values(op, draw, self._shape())
        torchside.assert_compiled_gradients(self.declared, op, draw, self._small())

    def test_second_gradients(self, op: Any, dtype: str, device: str) -> None:
        """The second derivative, likewise."""
        if not self.declared.second_backward:
            pytest.skip("no second backward is declared (second_backward=True)")
        draw = self._draw(dtype, device)
        torchside.assert_gradients(self.declared, op, draw, self._small(), order=2)

    # -- streams and devices ---------------------------------------------------------------

    def test_cuda_graph(self, op: Any, device: str) -> None:
        """It is captured, and a replay sees new inputs."""
        draw = self._draw(self.declared.dtypes[0], device)
        self._need_values(op, draw, self._shape())
        gpu.assert_graph(self.declared, op, draw, self._shape())

    def test_side_stream(self, op: Any, device: str) -> None:
        """It runs on the current stream, behind what is queued there."""
        draw = self._draw(self.declared.dtypes[0], device)
        self._need_values(op, draw, self._shape())
        gpu.assert_side_stream(self.declared, op, draw, self._shape())

    def test_second_device(self, op: Any, device: str) -> None:
        """It runs where its arguments are, though another device is current."""
        del device
        gpu.need_second_device()
        draw = self._draw(self.declared.dtypes[0], "cuda:1")
        self._need_values(op, self._draw(self.declared.dtypes[0], "cuda"), self._shape())
        gpu.assert_second_device(self.declared, op, draw, self._shape())

    def test_sanitizer(self, request: pytest.FixtureRequest, tool: str, device: str) -> None:
        """compute-sanitizer over the checks of values, in a process of its own."""
        del device
        if not tool:
            pytest.skip("not asked for: --sanitizer memcheck (racecheck, initcheck, synccheck)")
        gpu.assert_sanitized(tool, request.node.nodeid, request.config)

    # -- the case --------------------------------------------------------------------------

    def _assert_values(self, op: Any, draw: Draw, shape: tuple[int, ...]) -> None:
        if gpu.sanitized():
            case = cases.Case.make(self.declared, draw, shape)
        else:
            case = cases.guarded(self.declared, draw, shape, 0).case
        cases.assert_case(self.declared, case, _held(op, case))

    def _need_values(self, op: Any, draw: Draw, shape: tuple[int, ...]) -> None:
        """Leave a check out whose case is wrong in plain form: one fault, one failing check."""
        known, question = self._right, (op, draw.dtype, draw.device, shape)
        if question not in known:
            try:
                self._assert_values(op, draw, shape)
                known[question] = True
            except AssertionError:
                known[question] = False
        if not known[question]:
            pytest.skip("the values of plain arguments are wrong already: see test_values")

    def _draw(self, dtype: str, device: str, **options: Any) -> Draw:
        import torch  # noqa: PLC0415 - torch is imported where it is used

        return Draw(device=device, dtype=getattr(torch, dtype), **options)

    def _shape(self) -> tuple[int, ...]:
        """The largest shape that is quick: the checks that are not about shapes run on it."""
        shapes = [s for s in self.declared.shapes.values() if math.prod(s)]
        fit = [s for s in shapes if math.prod(s) <= _QUICK_ELEMENTS]
        least = min(shapes or self.declared.shapes.values(), key=math.prod)
        return max(fit, key=math.prod, default=least)

    def _count_drawn(self) -> int:
        """How many tensors a case has."""
        draw = self._draw(self.declared.dtypes[0], "cpu")
        self.declared.inputs(draw, self._small())
        return len(draw.drawn)

    def _small(self) -> tuple[int, ...]:
        """The largest that a numerical derivative is affordable for."""
        fit = [s for s in self.declared.shapes.values() if 0 < math.prod(s) <= _GRAD_ELEMENTS]
        return max(fit, key=math.prod, default=self._shape())


def _attribute(kernel: Any, name: str) -> Any:
    """What the tested build has under a name, which may have dots.

    Raises:
        UsageError: nothing.
    """
    try:
        return functools.reduce(getattr, name.split("."), kernel)
    except AttributeError as error:
        there = [one for one in vars(kernel) if not one.startswith("_")]
        raise UsageError(
            f"the tested build has no {name!r} (op=)", hint=f"it has {', '.join(sorted(there))}"
        ) from error


def _held(op: Any, case: cases.Case) -> Any:
    """What a call returns; what it writes beside its results harms nobody, and is not judged."""
    if gpu.sanitized():
        return op(*case.args)
    returned, _ = guards.watched(lambda: op(*case.args))
    return returned
