# SPDX-License-Identifier: Apache-2.0
"""The loop: candidates take turns in random order, on fresh inputs, and results are verified.

A round is a turn of each candidate: a block of calls, on inputs that are the same for all and new
in each round. The result of one call of a block, which the candidate cannot foresee, is compared
with the reference; a candidate with a wrong result is refused. A round gives one time for each
candidate.
"""

from __future__ import annotations

import datetime as dt
import math
import platform
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernforge.bench import stats
from kernforge.bench.timer import CpuTimer, CudaTimer, Gpu, capture
from kernforge.bench.workload import Candidate, Mode, Settings, Subject
from kernforge.errors import KernforgeError, UsageError
from kernforge.system import machine as system_machine

COPY = "a copy of as many bytes"
WIDTH = 0.02
"""A candidate whose interval is this share of its median, or less, needs no more rounds."""
_MOST_CALLS = 32
_MOST_FLUSHED = 8  # On a CPU a flush takes longer than most calls.
_MOST_BYTES = 256 << 20
_WARM_UP = 3
_TRIED = 3
_SIDE = {"cpu": 1024, "cuda": 8192}
_LONGEST_REASON = 300
_WIDEST = 1.5


@dataclass(slots=True, kw_only=True)
class Measurement:
    """A candidate on a workload in one mode.

    Attributes:
        rounds: nanoseconds of a call, by round.
        times_ns: nanoseconds of every call.
        checked: how many results were compared with the reference.
        refused: the error of the candidate; "" without one.
        skipped: the reason why it does not take part; "" if it does.
    """

    candidate: str
    kind: str
    mode: Mode
    rounds: dict[int, float] = field(default_factory=dict)
    times_ns: list[float] = field(default_factory=list)
    checked: int = 0
    refused: str = ""
    skipped: str = ""

    @property
    def active(self) -> bool:
        """Whether it was neither refused nor skipped."""
        return not (self.refused or self.skipped)

    @property
    def median(self) -> stats.Median | None:
        """The median of the rounds; None where the candidate has no time."""
        if not self.active or len(self.rounds) < stats.FEWEST:
            return None
        return stats.median(list(self.rounds.values()))

    @property
    def inconclusive(self) -> bool:
        """Whether the median's interval is too wide to be a result."""
        median = self.median
        return median is not None and median.high > _WIDEST * median.low


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload with the times of all candidates.

    Attributes:
        copy_ns: nanoseconds of a copy of as many bytes, by mode.
        flops_per_s: rate of torch's matrix product; 0 where operations do not matter.
    """

    name: str
    family: str
    size: int
    bytes: int
    flops: int
    copy_ns: dict[str, float]
    flops_per_s: float
    measurements: tuple[Measurement, ...]

    def roof_ns(self, mode: str) -> float:
        """The least time by the machine's ceilings: a copy, or a product; 0 where it is not known.

        This is the roofline (Williams, Waterman, Patterson, Roofline, CACM 52 (4), 2009) with both
        ceilings measured in the same run.
        """
        product = self.flops / self.flops_per_s * 1e9 if self.flops_per_s else 0.0
        return max(self.copy_ns.get(mode, 0.0), product)

    def bound(self, mode: str) -> str:
        """The ceiling that limits it: ``memory`` or ``arithmetic``."""
        return "memory" if self.roof_ns(mode) == self.copy_ns.get(mode) else "arithmetic"

    def of(self, mode: str) -> list[Measurement]:
        """The measurements of one mode."""
        return [each for each in self.measurements if each.mode == mode]

    def ratio(self, measured: Measurement) -> stats.Median | None:
        """How many times as long a candidate takes as the first one, which is the kernel."""
        first = self.of(measured.mode)[0]
        if measured is first or measured.median is None or first.median is None:
            return None
        return stats.paired(measured.rounds, first.rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine and date of a run.

    Attributes:
        gpu: name of the GPU; "" for a run on the CPU.
        unavailable: why the GPU's clock is unknown; "" if it is known.
        clocks_mhz: the GPU's lowest and highest clock after a turn; empty if unknown.
        slowed: turns with a clock below the maximum, by the reason.
    """

    date: str
    system: str
    cpu: str
    cores: int
    python: str
    torch: str
    cuda: str
    gpu: str
    driver: str
    unavailable: str
    clocks_mhz: tuple[float, ...]
    slowed: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of a run.

    Attributes:
        failed: workloads that could not be run, and why.
        partial: whether an interrupt ended the run.
    """

    project: str
    machine: Machine
    settings: Settings
    cases: tuple[Case, ...]
    failed: dict[str, str]
    partial: bool

    @property
    def title(self) -> str:
        """The project, and the device of the run."""
        return f"{self.project} on {self.machine.gpu or self.machine.cpu}"


Work: TypeAlias = Mapping[str, tuple[Callable[[], Subject], Sequence[Candidate]]]
"""Workloads by name: a function that makes the inputs, and the candidates."""


@dataclass(slots=True, kw_only=True)
class _Runner:
    """A candidate measured in one mode: a turn is ``count`` calls, or a graph of them."""

    measured: Measurement
    call: Callable[..., Any]
    count: int = 1
    graph: Any = None
    results: list[Any] = field(default_factory=list)


def measure(
    work: Work, settings: Settings, note: Callable[[str], None], project: str = ""
) -> Report:
    """Measure workloads in this process; an interrupt ends it with a partial report.

    Args:
        note: called with a line for each workload and each refusal.
        project: name for the title.
    """
    loop = _Loop(settings, note)
    cases: list[Case] = []
    failed: dict[str, str] = {}
    for name, (make_subject, candidates) in work.items():
        try:
            cases.append(loop.measure(make_subject(), candidates))
        except KeyboardInterrupt:
            loop.interrupted = True
        except Exception as error:  # noqa: BLE001 - whatever the author's code raises is its result
            failed[name] = _raised(error)
        if loop.interrupted:
            break
        note(f"{name}: {failed.get(name, 'measured')}")
    return Report(
        project=project,
        machine=_machine(loop.gpu),
        settings=settings,
        cases=tuple(cases),
        failed=failed,
        partial=loop.interrupted,
    )


def _machine(gpu: Gpu | None) -> Machine:
    import torch

    clocks = gpu.clocks_mhz if gpu else []
    return Machine(
        date=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        system=f"{platform.system()} {platform.machine()}",
        cpu=system_machine.processor_name(),
        cores=system_machine.cores(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        gpu=torch.cuda.get_device_name(0) if gpu else "",
        driver=gpu.driver if gpu else "",
        unavailable=gpu.unavailable if gpu else "",
        clocks_mhz=(min(clocks), max(clocks)) if clocks else (),
        slowed=dict(gpu.slowed) if gpu else {},
    )


class _Loop:
    """Measures subjects; ``interrupted`` says whether an interrupt came meanwhile."""

    def __init__(self, settings: Settings, note: Callable[[str], None]) -> None:
        import torch

        on_gpu = settings.device == "cuda"
        if on_gpu and not torch.cuda.is_available():
            raise UsageError("this torch sees no CUDA device", hint="measure with --device cpu")
        self._settings, self._note = settings, note
        self._timer = CudaTimer() if on_gpu else CpuTimer()
        self.gpu = Gpu() if on_gpu else None
        self._products: dict[str, float] = {}
        self.interrupted = False

    def measure(self, subject: Subject, candidates: Sequence[Candidate]) -> Case:
        """Time the candidates on a subject."""
        device = self._settings.device
        functions = [(each, function_of(each, device)) for each in candidates]
        if subject.bytes:
            copy = _copy(subject.bytes, device)
            functions.append((Candidate(name=COPY, kind="reference", function=copy), copy))
        measurements: list[Measurement] = []
        refused: dict[str, str] = {}
        rate = 0.0
        try:
            rate = self._product_rate(subject.dtype) if subject.flops else 0.0
            for mode in self._settings.modes:
                runners = []
                for each, function in functions:
                    measured = Measurement(candidate=each.name, kind=each.kind, mode=mode)
                    measured.refused = refused.get(each.name, "")
                    measurements.append(measured)
                    runners.append(_Runner(measured=measured, call=function))
                    self._prepare(runners[-1], subject)
                self._rounds(runners, subject, mode)
                refused = {each.candidate: each.refused for each in measurements}
        except KeyboardInterrupt:
            self.interrupted = True
        return Case(
            name=subject.name,
            family=subject.family,
            size=subject.size,
            bytes=subject.bytes,
            flops=subject.flops,
            copy_ns={
                each.mode: stats.median(list(each.rounds.values())).value
                for each in measurements
                if each.candidate == COPY and each.rounds
            },
            flops_per_s=rate,
            measurements=tuple(each for each in measurements if each.candidate != COPY),
        )

    def _prepare(self, runner: _Runner, subject: Subject) -> None:
        """Warm up, and find how many calls a turn has."""
        measured = runner.measured
        if not measured.active:
            return
        try:
            for _ in range(_WARM_UP):
                subject.renew(0, 1)
                if runner.call(*subject.calls[0]) is NotImplemented:
                    measured.skipped = "it does not compute this workload"
                    return
            subject.renew(0, 1)
            call_s = self._least_ns(runner.call, subject.calls[0]) / 1e9
            runner.count = self._calls(call_s, subject, measured.mode)
            if measured.mode == "graph" and measured.candidate != COPY:
                self._capture(runner, subject)
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
            self._refuse(measured, subject, _raised(error))

    def _least_ns(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
        """The least time of some calls with warm caches."""
        times, _ = self._timer.block(call, [arguments] * _TRIED, lambda _place: None, 0)
        return min(times)

    def _refuse(self, measured: Measurement, subject: Subject, why: str) -> None:
        measured.refused = why
        self._note(f"{subject.name}, {measured.candidate}, {measured.mode}: {why}")

    def _capture(self, runner: _Runner, subject: Subject) -> None:
        subject.renew(0, runner.count)
        try:
            runner.graph, runner.results = capture(runner.call, subject.calls[: runner.count])
        except Exception as error:  # noqa: BLE001 - a candidate that waits for the GPU, as many do
            why = f"it cannot be captured in a CUDA graph: {_raised(error)}"
            runner.measured.skipped = why

    def _calls(self, call_s: float, subject: Subject, mode: Mode) -> int:
        """Calls of a turn: enough to fill it, as many as memory allows."""
        wanted = math.ceil(self._settings.block_s / max(call_s, 1e-7))
        most = _MOST_FLUSHED if (mode, self._settings.device) == ("cold", "cpu") else _MOST_CALLS
        return max(1, min(wanted, most, _MOST_BYTES // max(subject.call_bytes, 1)))

    def _rounds(self, runners: Sequence[_Runner], subject: Subject, mode: Mode) -> None:
        for number in range(1, self._settings.most + 1):
            order = list(runners)
            rng = random.Random(f"{subject.name}/{mode}/{number}")  # noqa: S311 - no secret
            rng.shuffle(order)
            for runner in order:
                if runner.measured.active:
                    self._turn(runner, subject, number, rng)
            if number >= stats.FEWEST and all(
                stats.median(list(each.measured.rounds.values())).width <= WIDTH
                for each in runners
                if each.measured.active and each.measured.rounds
            ):
                break

    def _turn(self, runner: _Runner, subject: Subject, number: int, rng: random.Random) -> None:
        """One block of calls of a candidate."""
        measured = runner.measured
        subject.renew(number, runner.count)
        checked = rng.randrange(runner.count)
        times: list[float] = []
        try:
            if runner.graph is not None:
                times, _ = self._timer.block(runner.graph.replay, [()], self._flush, 0)
                times, result = [times[0] / runner.count], runner.results[checked]
            else:
                before = subject.touch if measured.mode == "hot" else self._flush
                calls = subject.calls[: runner.count]
                times, result = self._timer.block(runner.call, calls, before, checked)
            reason = "" if measured.kind == "reference" else subject.verify(checked, result)
        except KernforgeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
            reason = _raised(error)
        if reason:
            self._refuse(measured, subject, f"call {checked} of round {number}: {reason}")
            return
        measured.checked += subject.verifies
        if self.gpu:
            self.gpu.read()
        measured.rounds[number] = stats.of_calls(times)
        measured.times_ns += times

    def _flush(self, _place: int) -> None:
        self._timer.flush()

    def _product_rate(self, dtype: str) -> float:
        """Operations a second of torch's product of large square matrices; 0 where it has none."""
        import torch

        if dtype not in self._products:
            device = self._settings.device
            side = _SIDE[device]
            try:
                matrix = torch.randn(side, side, device=device).to(getattr(torch, dtype))
                times = [self._least_ns(torch.mm, (matrix, matrix)) for _ in range(_WARM_UP + 1)]
                self._products[dtype] = 2.0 * side**3 * 1e9 / times[-1]
            except RuntimeError:  # torch multiplies no such type on this device
                self._products[dtype] = 0.0
        return self._products[dtype]


def function_of(candidate: Candidate, device: str) -> Callable[..., Any]:
    """The function to call; torch.compile tunes for the shapes of one workload alone."""
    import torch

    if candidate.kind != "compiled":
        return candidate.function
    torch.compiler.reset()
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    if device == "cuda":
        options["mode"] = "max-autotune-no-cudagraphs"
    compiled: Callable[..., Any] = torch.compile(candidate.function, **options)
    return compiled


def _copy(moved: int, device: str) -> Callable[..., Any]:
    """A function that reads half of so many bytes and writes the other half."""
    import torch

    half = torch.ones(max(1, moved // 8), dtype=torch.int32, device=device)
    # On a GPU a kernel copies (and negates) as fast as its copy does, for less of a start.
    return (lambda *_: half.clone()) if device == "cpu" else (lambda *_: half.neg())


def _raised(error: Exception) -> str:
    if isinstance(error, KernforgeError):
        return error.message
    first = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}: {first}"[:_LONGEST_REASON]
