# SPDX-License-Identifier: Apache-2.0
"""The checks of an operator; each is a test that ``pytest -k`` can select."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from kernforge.compare.results import assert_bitwise
from kernforge.testing import gpu, guards, torch_contract
from kernforge.testing.case import Case, OpDeclaration, Trial, check_options
from kernforge.testing.inputs import MIXED, Draw
from kernforge.testing.plugin import environment

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
_RUNS = 5
_GRAD_ELEMENTS = 1000
_QUICK_ELEMENTS = 2**17
_ON_GPU = (
    *("cuda_graph", "side_stream", "second_device", "sanitizer"),
    "more_than_2_to_the_31_elements",
)


class Checks:
    """All checks of one operator; ``op_tests`` makes a subclass for each operator."""

    declared: ClassVar[OpDeclaration]
    _right: ClassVar[dict[Any, bool]] = {}
    _sanitized = False

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Give each check its devices, dtypes, shapes and other parameters."""
        declared, name = metafunc.cls.declared, metafunc.function.__name__.removeprefix("test_")
        devices = [d for d in declared.devices if d == "cuda" or name not in _ON_GPU]
        marks = {"cuda": [pytest.mark.gpu]}
        values = {
            "shape": [pytest.param(s, id=n) for n, s in declared.shapes.items()],
            "view": list(declared.views),
            "dtype": list(declared.dtypes),
            "part": list(torch_contract.OPCHECKS),
            "tool": metafunc.config.getoption("sanitizer", None) or [""],
            "device": [pytest.param(d, marks=marks.get(d, [])) for d in devices],
        }
        for argument, chosen in values.items():
            if argument in metafunc.fixturenames:
                metafunc.parametrize(argument, chosen)

    @classmethod
    def applies(cls, item: Any, backends: frozenset[str]) -> bool:
        """Whether the declaration, the command line and the tested build ask for a test."""
        declared, parameters = cls.declared, item.callspec.params
        named = isinstance(declared.op, str) and backends  # an attribute of the tested build
        if parameters.get("device") not in (named or declared.devices):
            return False
        asked = {
            "more_than_2_to_the_31_elements": declared.large is not None,
            "gradients": declared.backward,
            "compiled_gradients": declared.backward,
            "second_gradients": declared.second_backward,
            "sanitizer": bool(parameters.get("tool")),
        }
        return asked.get(item.originalname.removeprefix("test_"), True)

    @pytest.fixture(autouse=True)
    def _skip_left_out(self, request: pytest.FixtureRequest) -> None:
        """Skip checks that the author leaves out or that this machine cannot run, with a reason.

        compute-sanitizer checks each allocation; guards and poison would only hide errors from it.
        """
        self._sanitized = gpu.SANITIZED_BY in environment(request.config).variables
        name = request.function.__name__.removeprefix("test_")
        if name in self.declared.leave_out:
            pytest.skip(self.declared.leave_out[name])
        if request.node.callspec.params.get("device") == "cuda":
            gpu.skip_without_gpu()

    @pytest.fixture
    def op(self, request: pytest.FixtureRequest, device: str) -> Any:
        """The operator: the declared callable, or the declared attribute of the tested build."""
        del device
        operator = self.declared.op
        if isinstance(operator, str):
            kernel = request.getfixturevalue("kernel")
            operator = functools.reduce(getattr, operator.split("."), kernel)
        call = self.declared.call
        return operator if call is None else functools.partial(call, operator)

    # -- values ----------------------------------------------------------------------------

    def test_values(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """Every shape gives the reference's values; new memory is filled with poison before."""
        self._check_values(self._trial(op, device, dtype, shape))

    def test_special_values(self, op: Any, dtype: str, device: str) -> None:
        """NaN, infinities, negative zero, the largest and the smallest numbers."""
        self._check(self._right_trial(op, device, dtype).drawn(special=True))

    def test_views(self, op: Any, view: str, dtype: str, device: str) -> None:
        """Arguments that are not contiguous, or that begin after an aligned address."""
        self._check(self._right_trial(op, device, dtype).drawn(layout=view))

    def test_mixed_views(self, op: Any, dtype: str, device: str) -> None:
        """One tensor has another layout than the others, each tensor in turn."""
        trial = self._right_trial(op, device, dtype)
        count = self._count_drawn()
        if count == 1:
            pytest.skip("the operator has a single tensor: see test_views")
        for layout in [v for v in MIXED if v in self.declared.views]:
            for number in range(count):
                try:
                    self._check(trial.drawn(layout=layout, only=number))
                except AssertionError as error:
                    raise AssertionError(f"drawn tensor {number} {layout}: {error}") from error

    def test_more_than_2_to_the_31_elements(self, op: Any, device: str) -> None:
        """Indices need 64 bits; skipped without enough memory."""
        trial = self._right_trial(op, device)
        gpu.skip_without_memory(trial)
        gpu.assert_large(trial)

    # -- memory ----------------------------------------------------------------------------

    def test_sentinels(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """Nothing is written before or after an argument or a result."""
        case = self._trial(op, device, dtype, shape).guarded_case(guards.POISON)
        _, watch = guards.watched(lambda: op(*case.args))
        if text := case.broken() or watch.broken():
            raise AssertionError(text)

    def test_neighbours(self, op: Any, shape: Any, dtype: str, device: str) -> None:
        """Values around the arguments, here NaN or -1, do not change the result."""
        case = self._right_trial(op, device, dtype, shape).guarded_case(0xFF)
        case.check(self._call_guarded(op, case))

    def test_inputs_untouched(self, op: Any, dtype: str, device: str) -> None:
        """The call changes no bit of an argument that is not a result."""
        case = self._trial(op, device, dtype).case()
        self._call_guarded(op, case)
        if text := case.inputs_changed():
            raise AssertionError(text)

    def test_determinism(self, op: Any, dtype: str, device: str) -> None:
        """Equal arguments give equal bits, run after run."""
        first: tuple[Any, ...] | None = None
        for run in range(_RUNS):
            case = self._trial(op, device, dtype).case()
            got = case.results(self._call_guarded(op, case))
            first = first or tuple(result.clone() for result in got)
            for result, before in zip(got, first, strict=True):
                assert_bitwise(result, before, what=f"run {run + 1}, compared with run 1")

    # -- registration with torch -----------------------------------------------------------

    def test_opcheck(self, op: Any, part: str, device: str) -> None:
        """``torch.library.opcheck`` on each custom operator that the call reaches."""
        trial = self._trial(op, device)
        if part == "aot":  # compares results
            self._skip_if_values_wrong(trial)
        torch_contract.opcheck(trial, part)

    def test_compile(self, op: Any, device: str) -> None:
        """``torch.compile`` compiles it without graph breaks, and equal shapes only once."""
        torch_contract.assert_compiles(self._right_trial(op, device))

    def test_gradients(self, op: Any, dtype: str, device: str) -> None:
        """First derivative: by gradcheck in float64, by the reference's in other dtypes."""
        trial = self._trial(op, device, dtype, self._small())
        torch_contract.assert_gradients(trial, order=1)

    def test_compiled_gradients(self, op: Any, device: str) -> None:
        """``torch.compile`` compiles the derivative too."""
        trial = replace(self._right_trial(op, device), shape=self._small())
        torch_contract.assert_compiled_gradients(trial)

    def test_second_gradients(self, op: Any, dtype: str, device: str) -> None:
        """The second derivative: gradgradcheck in float64, the reference's in other dtypes."""
        trial = self._trial(op, device, dtype, self._small())
        torch_contract.assert_gradients(trial, order=2)

    # -- streams and devices ---------------------------------------------------------------

    def test_cuda_graph(self, op: Any, device: str) -> None:
        """The call can be captured, and a replay reads new inputs."""
        gpu.assert_graph(self._right_trial(op, device))

    def test_side_stream(self, op: Any, device: str) -> None:
        """The call runs on the current stream, after the work that is queued there."""
        import torch

        trial = self._right_trial(op, device)
        with torch.cuda.stream(torch.cuda.Stream()):
            gpu.assert_stream_order(trial)

    def test_second_device(self, op: Any, device: str) -> None:
        """The call runs on the device of its arguments while another device is current."""
        import torch

        if (count := torch.cuda.device_count()) < 2:  # noqa: PLR2004
            pytest.skip(f"needs 2 GPUs, this machine has {count}")
        gpu.assert_stream_order(self._right_trial(op, device).drawn(device="cuda:1"))

    def test_sanitizer(self, request: pytest.FixtureRequest, tool: str, device: str) -> None:
        """The checks of values under compute-sanitizer, in another process."""
        del device
        config = request.config
        gpu.assert_sanitized(tool, request.node.nodeid, config, environment(config))

    # -- the trial -------------------------------------------------------------------------

    def _trial(
        self, op: Any, device: str, dtype: str = "", shape: tuple[int, ...] | None = None
    ) -> Trial:
        """A trial with contiguous arguments; by default of the first dtype and a quick shape."""
        import torch

        draw = Draw(device=device, dtype=getattr(torch, dtype or self.declared.dtypes[0]))
        chosen = self._shape() if shape is None else shape
        return Trial(declared=self.declared, op=op, draw=draw, shape=chosen)

    def _right_trial(
        self, op: Any, device: str, dtype: str = "", shape: tuple[int, ...] | None = None
    ) -> Trial:
        """A trial with contiguous arguments; skip if their values are wrong."""
        trial = self._trial(op, device, dtype, shape)
        self._skip_if_values_wrong(trial)
        return trial

    def _skip_if_values_wrong(self, trial: Trial) -> None:
        """Skip a check whose trial is wrong for contiguous arguments, so that one check fails."""
        known, key = self._right, (trial.op, trial.draw.dtype, trial.draw.device, trial.shape)
        if key not in known:
            try:
                self._check_values(trial)
                known[key] = True
            except AssertionError:
                known[key] = False
        if not known[key]:
            pytest.skip("the values of contiguous arguments are wrong: see test_values")

    def _check_values(self, trial: Trial) -> None:
        """Compare a call's results with the reference's, with guards around the arguments."""
        case = trial.case() if self._sanitized else trial.guarded_case(0)
        case.check(self._call_guarded(trial.op, case))

    def _check(self, trial: Trial) -> None:
        case = trial.case()
        case.check(self._call_guarded(trial.op, case))

    def _call_guarded(self, op: Any, case: Case) -> Any:
        """The result of a call with guards around new memory; the guards are not checked here."""
        if self._sanitized:
            return op(*case.args)
        returned, _ = guards.watched(lambda: op(*case.args))
        return returned

    def _shape(self) -> tuple[int, ...]:
        """The largest shape that is quick to run, for the checks that are not about shapes."""
        shapes = [s for s in self.declared.shapes.values() if math.prod(s)]
        fit = [s for s in shapes if math.prod(s) <= _QUICK_ELEMENTS]
        least = min(shapes or self.declared.shapes.values(), key=math.prod)
        return max(fit, key=math.prod, default=least)

    def _count_drawn(self) -> int:
        """Number of tensors of a case."""
        draw = self._trial(None, "cpu").draw
        self.declared.inputs(draw, self._small())
        return len(draw.drawn)

    def _small(self) -> tuple[int, ...]:
        """The largest shape that is small enough for a numerical derivative."""
        fit = [s for s in self.declared.shapes.values() if 0 < math.prod(s) <= _GRAD_ELEMENTS]
        return max(fit, key=math.prod, default=self._shape())


def op_tests(
    *,
    op: str | Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Callable[[Draw, tuple[int, ...]], tuple[Any, ...]],
    **options: Any,
) -> type[Checks]:
    """A class of tests for one operator; assign it to a name that begins with ``Test``.

    Args:
        op: a callable, or the name of an attribute of the tested build (the fixture ``kernel``).
        reference: the same computation in plain torch. It takes the same arguments and returns
            first the tensors that the operator writes to (``draw.out``, ``draw.inplace``), then
            what the operator returns. It is called with float64 arguments for the exact values and
            with arguments of the tested dtype for the tolerance.
        inputs: makes the arguments from ``draw`` and a shape: ``draw(shape)`` is a tensor of the
            tested dtype, ``draw(shape, "int64")`` a tensor of another dtype.
        options: the other attributes of a declaration: call, shapes, dtypes, devices, views,
            backward, second_backward, elementwise, rowwise, large, factor, leave_out.

    Raises:
        UsageError: an option, dtype, device, view or check is unknown.
    """
    checks = {n.removeprefix("test_") for n in dir(Checks) if n.startswith("test_")}
    settings = check_options(options, checks)
    declared = OpDeclaration(op=op, reference=reference, inputs=inputs, **settings)
    return type("Checks", (Checks,), {"declared": declared, "_right": {}, "__test__": True})
