# SPDX-License-Identifier: Apache-2.0
"""The loop: candidates take turns in random order, on fresh inputs, and results are verified.

A round is a turn of each candidate: a block of calls, on inputs that are the same for all and new
in each round. The result of one call of a block, which the candidate cannot foresee, is compared
with the reference; a candidate with a wrong result is refused. A round gives one time for each
candidate.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
import platform
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kernforge.bench import stats
from kernforge.bench.timer import CpuTimer, CudaTimer, Gpu, capture
from kernforge.bench.torch_settings import kept
from kernforge.bench.workload import Candidate, Kind, Mode, Settings, Subject
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
class Result:
    """A candidate on a workload in one mode, filled by the loop.

    The times are nanoseconds of a call: the median of the rounds and its 95 % interval, None where
    there are too few rounds.

    Attributes:
        checked: how many results were compared with the reference.
        refused: the error of the candidate; "" without one.
        skipped: the reason why it does not take part; "" if it does.
        inconclusive: whether the interval is too wide to be a result.
        changed: the settings of torch that it changed, which were restored; "" if none.
        ratio: how many times as long it takes as the first candidate, which is the kernel.
        roof_ns: the least time by the machine's ceilings, a copy or a product; 0 if not known. This
            is the roofline (Williams, Waterman, Patterson, Roofline, CACM 52 (4), 2009) with both
            ceilings measured in the same run.
        bound: the ceiling that limits it: ``memory`` or ``arithmetic``.
    """

    candidate: str
    kind: Kind
    mode: Mode
    rounds: int = 0
    checked: int = 0
    refused: str = ""
    skipped: str = ""
    median_ns: float | None = None
    low_ns: float | None = None
    high_ns: float | None = None
    inconclusive: bool = False
    changed: str = ""
    ratio: stats.Ratio | None = None
    roof_ns: float = 0.0
    bound: str = "memory"

    @property
    def active(self) -> bool:
        """Whether it was neither refused nor skipped."""
        return not (self.refused or self.skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A workload with the results of all candidates."""

    name: str
    family: str
    size: int
    bytes: int
    flops: int
    results: tuple[Result, ...]

    def of(self, mode: Mode) -> list[Result]:
        """The results of one mode."""
        return [each for each in self.results if each.mode == mode]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine and date of a run; ``gpu`` is None for a run on the CPU."""

    date: str
    system: str
    cpu: str
    cores: int
    python: str
    torch: str
    cuda: str
    gpu: Gpu | None

    @property
    def device(self) -> str:
        """The name of the measured device."""
        return self.gpu.name if self.gpu else self.cpu


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
    workloads: tuple[Case, ...]
    failed: dict[str, str]
    partial: bool

    @property
    def title(self) -> str:
        """The project, and the device of the run."""
        return f"{self.project} on {self.machine.device}"


Work: TypeAlias = Mapping[str, tuple[Callable[[], Subject], Sequence[Candidate]]]
"""Workloads by name: a function that makes the inputs, and the candidates."""


@dataclass(slots=True, kw_only=True)
class _Runner:
    """A candidate measured in one mode: a turn is ``count`` calls, or a graph of them.

    Attributes:
        rounds: nanoseconds of a call, by round.
    """

    result: Result
    call: Callable[..., Any]
    rounds: dict[int, float] = field(default_factory=dict)
    count: int = 1
    graph: Any = None
    graph_results: list[Any] = field(default_factory=list)

    @property
    def median(self) -> stats.Median | None:
        """The median of the rounds so far; None without one."""
        return stats.median(list(self.rounds.values())) if self.rounds else None


def measure(
    work: Work, settings: Settings, note: Callable[[str], None], project: str = ""
) -> Report:
    """Measure workloads in this process; an interrupt ends it with a partial report.

    Args:
        note: called with a line for each workload and each refusal.
    """
    loop = _Loop(settings, note)
    cases: list[Case] = []
    failed: dict[str, str] = {}
    for name, (make_subject, candidates) in work.items():
        try:
            with kept(f"the reference of {name}", note):
                subject = make_subject()
            cases.append(loop.measure(subject, candidates))
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
        workloads=tuple(cases),
        failed=failed,
        partial=loop.interrupted,
    )


def _machine(gpu: Gpu | None) -> Machine:
    import torch

    return Machine(
        date=dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        system=f"{platform.system()} {platform.machine()}",
        cpu=system_machine.processor_name(),
        cores=system_machine.cores(),
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda or "",
        gpu=gpu,
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
        results: list[Result] = []
        refused: dict[str, str] = {}
        try:
            rate = self._product_rate(subject.dtype) if subject.flops else 0.0
            for mode in self._settings.modes:
                runners = []
                for each, call in functions:
                    result = Result(candidate=each.name, kind=each.kind, mode=mode)
                    result.refused = refused.get(each.name, "")
                    runners.append(_Runner(result=result, call=call))
                results += [each.result for each in runners if each.result.candidate != COPY]
                try:
                    for runner in runners:
                        with self._kept(runner.result, subject):
                            self._prepare(runner, subject)
                    self._rounds(runners, subject, mode)
                finally:  # after an interrupt, too
                    _conclude(runners, subject.flops / rate * 1e9 if rate else 0.0)
                refused = {each.candidate: each.refused for each in results}
        except KeyboardInterrupt:
            self.interrupted = True
        return Case(
            name=subject.name,
            family=subject.family,
            size=subject.size,
            bytes=subject.bytes,
            flops=subject.flops,
            results=tuple(results),
        )

    @contextlib.contextmanager
    def _kept(self, result: Result, subject: Subject) -> Iterator[None]:
        """Restore the settings of torch after a candidate's code, and name it the first time."""

        def changed(text: str) -> None:
            if not result.changed:
                self._note(f"{subject.name}, {result.mode}: {text}")
                result.changed = text

        with kept(result.candidate, changed):
            yield

    def _prepare(self, runner: _Runner, subject: Subject) -> None:
        """Warm up, and find how many calls a turn has."""
        result = runner.result
        if not result.active:
            return
        try:
            for _ in range(_WARM_UP):
                subject.renew(0, 1)
                if runner.call(*subject.calls[0]) is NotImplemented:
                    result.skipped = "it does not compute this workload"
                    return
            subject.renew(0, 1)
            call_s = self._least_ns(runner.call, subject.calls[0]) / 1e9
            runner.count = self._calls(call_s, subject, result.mode)
            if result.mode == "graph" and result.candidate != COPY:
                self._capture(runner, subject)
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
            self._refuse(result, subject, _raised(error))

    def _least_ns(self, call: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
        """The least time of some calls with warm caches."""
        times, _ = self._timer.block(call, [arguments] * _TRIED, lambda _place: None, 0)
        return min(times)

    def _refuse(self, result: Result, subject: Subject, why: str) -> None:
        result.refused = why
        self._note(f"{subject.name}, {result.candidate}, {result.mode}: {why}")

    def _capture(self, runner: _Runner, subject: Subject) -> None:
        subject.renew(0, runner.count)
        try:
            calls = subject.calls[: runner.count]
            runner.graph, runner.graph_results = capture(runner.call, calls)
        except Exception as error:  # noqa: BLE001 - a candidate that waits for the GPU, as many do
            why = f"it cannot be captured in a CUDA graph: {_raised(error)}"
            runner.result.skipped = why

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
                if runner.result.active:
                    with self._kept(runner.result, subject):
                        self._turn(runner, subject, number, rng)
            medians = [each.median for each in runners if each.result.active]
            if number >= stats.FEWEST and all(each.width <= WIDTH for each in medians if each):
                break

    def _turn(self, runner: _Runner, subject: Subject, number: int, rng: random.Random) -> None:
        """One block of calls of a candidate."""
        subject.renew(number, runner.count)
        checked = rng.randrange(runner.count)
        times: list[float] = []
        try:
            if runner.graph is not None:
                times, _ = self._timer.block(runner.graph.replay, [()], self._timer.flush, 0)
                times, result = [times[0] / runner.count], runner.graph_results[checked]
            else:
                before = subject.touch if runner.result.mode == "hot" else self._timer.flush
                calls = subject.calls[: runner.count]
                times, result = self._timer.block(runner.call, calls, before, checked)
            is_reference = runner.result.kind == "reference"
            reason = "" if is_reference else subject.verify(checked, result)
        except KernforgeError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
            reason = _raised(error)
        if reason:
            self._refuse(runner.result, subject, f"call {checked} of round {number}: {reason}")
            return
        runner.result.checked += subject.verifies
        if self.gpu:
            self.gpu.read()
        runner.rounds[number] = stats.of_calls(times)

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


def _conclude(runners: Sequence[_Runner], product_ns: float) -> None:
    """Fill the results of a mode from its rounds."""
    kernel = runners[0]
    copies = (each.median for each in runners if each.result.candidate == COPY)
    copy_ns = next((median.value for median in copies if median), 0.0)
    for each in runners:
        result, median = each.result, each.median
        result.rounds, result.roof_ns = len(each.rounds), max(copy_ns, product_ns)
        result.bound = "memory" if copy_ns >= product_ns else "arithmetic"
        if median and result.active and result.rounds >= stats.FEWEST:
            result.median_ns, result.low_ns, result.high_ns = median.value, median.low, median.high
            result.inconclusive = median.high > _WIDEST * median.low
            if each is not kernel and kernel.result.active:
                result.ratio = stats.paired(each.rounds, kernel.rounds)


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
