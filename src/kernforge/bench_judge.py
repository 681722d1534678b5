# SPDX-License-Identifier: Apache-2.0
"""The process that decides: it draws the inputs, keeps the clock, and looks at the results.

Every candidate of a workload has a fresh process, and all take turns in random order; who is not on
turn is stopped. A turn is several calls, each timed by the worker. When the worker says that it is
done, the judge reads its own clock, stops every thread of the worker, and only then chooses which
results to look at. What the worker's clock leaves out must fit into what an empty call costs.
"""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge import bench_check, bench_doubts, bench_plan, bench_stats, files
from kernforge.bench_plan import NOTHING, PRODUCT, Candidate, Settings, Tensor, Workload
from kernforge.bench_runner import START_S, Field

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor as Torch

    from kernforge.bench_plan import Layout, Mode
    from kernforge.bench_runner import Runner

_SPOT_CHECKS = 4
# Copies of a turn's tensors: that a worker may keep, and that the judge needs to look at them.
_KEPT, _JUDGES = 3, 6
_FLUSHED_CALLS = 8  # A flush takes longer than many a call.
_PRODUCTS = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a candidate with a workload in one mode.

    Attributes:
        candidate: its name.
        kind: what it is.
        workload: the workload's name.
        mode: how it was called.
        times_ns: nanoseconds of each call that counts.
        discarded: calls at a lower clock than usual, which do not count.
        clocks_mhz: lowest and highest clock of the calls; None where it cannot be read.
        checked: calls whose results the judge looked at.
        refused: why the times are no measurement; empty when they are.
        skipped: why there is no such mode of it; empty when there is.
        moved: bytes that the workload must move.
        flops: operations that it must do.
    """

    candidate: str
    kind: str
    workload: str
    mode: Mode
    times_ns: tuple[float, ...]
    discarded: int
    clocks_mhz: tuple[float, float] | None
    checked: int
    refused: str
    skipped: str
    moved: int
    flops: int


def measure(
    workload: Workload,
    candidates: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
) -> list[Measured]:
    """Measure candidates on one workload; see ``measure_all``."""
    return next(measure_all([workload], candidates, settings, note))


def measure_all(
    workloads: Sequence[Workload],
    candidates: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
) -> Iterator[list[Measured]]:
    """Measure candidates on workloads, beside an empty call, a copy and a matrix product.

    Each candidate has one process for all of them, started fresh.

    Args:
        workloads: what is computed, one after the other.
        candidates: who computes it.
        settings: how often, in which modes, on which device.
        note: told what happens.

    Yields:
        what came of each workload.

    Raises:
        UsageError: the exchange does not fit into memory, or a workload contradicts itself.
        MachineError: the GPU's driver refuses what the engine needs.
    """
    trials = [_Trial(each, settings) for each in workloads]
    shm = Path("/dev/shm")  # noqa: S108 - a staging directory of our own in it
    with files.staging(shm if shm.is_dir() else Path.cwd() / ".kernforge") as place:
        field = Field(candidates, settings, place, max(trial.size for trial in trials))
        try:
            field.start(counts=any(trial.flops for trial in trials))
            for trial in trials:
                yield trial.run(field.runners, note)
        finally:
            field.close()


class _Trial:
    """One workload, and who computes it."""

    def __init__(self, workload: Workload, settings: Settings) -> None:
        import torch  # noqa: PLC0415

        self._workload, self._settings = workload, settings
        seed = settings.seed or secrets.randbits(63)
        self._random = torch.Generator(device=settings.device).manual_seed(seed)
        first = bench_check.draw(workload, self._random)
        self.flops = bench_check.counted_flops(workload, first)
        self._layout: Layout = bench_check.layout(workload, bench_check.expected(workload, first))
        self._wanted: dict[int, tuple[Torch, ...]] = {}
        self._call_bytes = max(self._layout.set_bytes, sum(workload.held))
        self._most = bench_plan.calls_of(0.0, self._call_bytes, settings)
        self._runners: list[Runner] = []
        # Where the judge's own clock is sharp: no flush, and all that the host waits for is told.
        self._sharp: Mode = "launch" if settings.device == "cuda" else "hot"
        self._modes = tuple(dict.fromkeys((*settings.modes, "hot", self._sharp)))
        self._tight = False
        self.size = self._layout.set_bytes * self._most

    @property
    def moved(self) -> int:
        """Bytes that must be moved at least."""
        return _moved(self._workload, self._layout)

    def run(self, runners: list[Runner], note: Callable[[str], None]) -> list[Measured]:
        """Let all of them compute it."""
        self._runners = [r for r in runners if self.flops or r.candidate != PRODUCT]
        self._tight = self._is_tight()
        work = _work(self._workload, self._layout) | {"bytes": self.moved}
        for runner in self._runners:
            runner.begin(self._layout)
            if self._tight:
                runner.skipped["graph"] = "the GPU has no room for a graph's own tensors"
            if not runner.refused:
                runner.partner.resume()
                # What the others make for themselves the engine's own have, too.
                held = [] if runner.candidate.entry else list(self._workload.held)
                mine = work | {"held": held}
                if runner.ask(START_S, do="workload", work=mine) is not None:
                    self._warm_up(runner)
                self._leave(runner)
                runner.partner.pause()
        self._rounds(note)
        return self._measured()

    def _is_tight(self) -> bool:
        """Whether the GPU is too small for everyone to keep what a call needs."""
        import torch  # noqa: PLC0415

        if self._settings.device == "cpu":
            return False
        torch.cuda.empty_cache()
        free: int = torch.cuda.mem_get_info()[0]
        whole = self._call_bytes * self._most
        return whole * (_KEPT * len(self._runners) + _JUDGES) > free

    def _warm_up(self, runner: Runner) -> None:
        call_s = 0.0
        for calls in (1, 2, 4):
            given = self._draw(min(calls, self._most))
            answer = self._turn(runner, given, "hot", keep=False)
            if answer is None:
                return
            call_s = min(answer["times"]) / 1e9
        runner.calls = bench_plan.calls_of(call_s, self._call_bytes, self._settings)

    def _draw(self, calls: int) -> list[tuple[Any, ...]]:
        self._wanted = {}
        return [bench_check.draw(self._workload, self._random) for _ in range(calls)]

    def _rounds(self, note: Callable[[str], None]) -> None:
        """Let everyone take turns until the medians are sure."""
        for turn in range(self._settings.most):
            racing = {r.candidate.name: r for r in self._runners if not r.refused}
            calls = max((r.calls for r in racing.values()), default=1)
            given = self._draw(calls)
            for name in bench_plan.turns(sorted(racing), self._settings.seed, turn):
                runner = racing[name]
                runner.partner.resume()
                mine = given[: runner.calls]
                if self._tight:  # Memory that is new to a process is slower the first time.
                    self._turn(runner, mine, "hot", keep=False)
                for mode in self._modes:
                    if runner.refused:
                        break
                    if mode in runner.skipped:
                        continue
                    self._turn(runner, mine[: self._calls_in(mode)], mode, keep=True)
                self._leave(runner)
                runner.partner.pause()
                if runner.refused and runner.candidate.file:
                    note(f"{self._workload.name}: {name} is refused: {runner.refused}")
            if turn + 1 >= self._settings.least and self._sure():
                return

    def _leave(self, runner: Runner) -> None:
        """Have a candidate's memory for the next one, where the GPU has not enough for all."""
        if self._tight and not runner.refused:
            runner.ask(self._settings.patience_s, do="leave")

    def _calls_in(self, mode: Mode) -> int | None:
        """At most so many calls of a turn in a mode; None: all."""
        return _FLUSHED_CALLS if mode == "cold" and self._settings.device == "cpu" else None

    def _settle(self) -> None:
        """Let what the judge has queued on the device be done before a worker goes on."""
        import torch  # noqa: PLC0415

        if self._settings.device == "cuda":
            torch.cuda.synchronize()
            if self._tight:
                self._wanted = {}
                torch.cuda.empty_cache()

    def _sure(self) -> bool:
        return all(
            bench_stats.narrow_enough(times, self._settings.width)
            for runner in self._runners
            if runner.candidate.file and not runner.refused
            for times in runner.times.values()
        )

    def _turn(
        self, runner: Runner, given: list[tuple[Any, ...]], mode: Mode, *, keep: bool
    ) -> dict[str, Any] | None:
        """One turn: times, with the judge's clock beside them, and a look at the results."""
        patience = self._settings.patience_s
        for number, each in enumerate(given):
            runner.exchange.put(number, each)
        self._settle()
        if runner.ask(patience, do="prepare", calls=len(given)) is None:
            return None
        start = time.perf_counter_ns()
        answer = runner.ask(patience, do="go", mode=mode)
        wall = time.perf_counter_ns() - start
        runner.partner.pause()
        try:
            if answer is not None and isinstance(answer.get("skipped"), str):
                runner.skipped[mode] = answer["skipped"]
                return None
            if answer is None or not _plausible(answer, mode, len(given), runner):
                return None
            if runner.candidate.file:
                self._look(runner, given)
        finally:
            self._settle()
            runner.partner.resume()
        if not runner.refused and runner.candidate.file:
            self._look_at_inputs(runner, given)
        if keep:
            runner.times.setdefault(mode, []).extend(answer["times"])
            runner.clocks.setdefault(mode, []).extend(answer["clocks"])
            uneven = bench_doubts.unevenness(answer["times"])
            if mode == "hot" and uneven is not None:
                runner.unevenness.append(uneven)
            if mode == self._sharp:
                told = statistics.fmean(answer["times"]) * len(given)
                runner.untimed.append((wall, told, len(given)))
        return None if runner.refused else answer

    def _collected(self, runner: Runner) -> bool:
        """Have a stopped worker hand over what it puts together only now."""
        runner.partner.resume()
        answer = runner.ask(self._settings.patience_s, do="results")
        runner.partner.pause()
        return answer is not None

    def _look(self, runner: Runner, given: list[tuple[Any, ...]]) -> None:
        """Compare results of calls that nobody could foresee; all are taken out first."""
        if self._workload.late and not self._collected(runner):
            return
        results = [runner.exchange.results(number) for number in range(len(given))]
        picked = secrets.SystemRandom().sample(range(len(given)), k=min(_SPOT_CHECKS, len(given)))
        for number in sorted(picked):
            if number not in self._wanted:
                self._wanted[number] = bench_check.expected(self._workload, given[number])
            wanted = self._wanted[number]
            wrong = bench_check.difference(self._workload, results[number], wanted)
            runner.checked += 1
            if wrong:
                runner.refused = f"call {number} of {len(given)}: {wrong}"
                return

    def _look_at_inputs(self, runner: Runner, given: list[tuple[Any, ...]]) -> None:
        if runner.ask(self._settings.patience_s, do="inputs") is None:
            return
        for number, each in enumerate(given):
            if runner.exchange.changed_inputs(number, each, self._workload.inplace):
                runner.refused = f"call {number} of {len(given)} changed its inputs"
                return

    def _measured(self) -> list[Measured]:
        """What came of everyone, the clocks held against each other."""
        nothing = next(r for r in self._runners if r.candidate == NOTHING)
        for runner in self._runners:
            if runner.candidate.file and not runner.refused:
                runner.refused = (
                    bench_doubts.hidden_time(runner.untimed, nothing.untimed)
                    or bench_doubts.told_apart(runner.times)
                    or bench_doubts.uneven(runner.unevenness)
                )
        return [self._one(runner, mode) for runner in self._runners for mode in self._modes]

    def _one(self, runner: Runner, mode: Mode) -> Measured:
        times = runner.times.get(mode, [])
        clocks = runner.clocks.get(mode, [])
        kept = bench_stats.keep_unthrottled(times, clocks)
        known = [clock for clock in clocks if clock is not None]
        return Measured(
            candidate=runner.candidate.name,
            kind=runner.candidate.kind,
            workload=self._workload.name,
            mode=mode,
            times_ns=tuple(kept),
            discarded=len(times) - len(kept),
            clocks_mhz=(min(known), max(known)) if known else None,
            checked=runner.checked,
            refused=runner.refused,
            skipped=runner.skipped.get(mode, ""),
            moved=self.moved,
            flops=self.flops,
        )


def _plausible(answer: dict[str, Any], mode: Mode, calls: int, runner: Runner) -> bool:
    """Whether an answer has all its times; what has not is refused."""
    times, clocks = answer.get("times"), answer.get("clocks")
    if (
        isinstance(times, list)
        and isinstance(clocks, list)
        and len(times) == len(clocks) == bench_plan.samples_of(mode, calls)
        and all(isinstance(each, int | float) and each >= 0 for each in times)
        and all(each is None or isinstance(each, int | float) for each in clocks)
    ):
        return True
    runner.refused = f"its process reported no times of {calls} calls"
    return False


def _moved(workload: Workload, parts: Layout) -> int:
    if workload.bytes is not None:
        return workload.bytes
    return sum(part.nbytes for part in (*parts.inputs, *parts.outputs))


def _work(workload: Workload, parts: Layout) -> dict[str, Any]:
    """What a worker is told of a workload; nothing of the reference."""
    dtype = workload.tensors[0].dtype if workload.tensors else "float32"
    return {
        "inplace": list(workload.inplace),
        "late": workload.late,
        "inputs": [{"shape": each.shape, "dtype": each.dtype} for each in parts.inputs],
        "outputs": [{"shape": each.shape, "dtype": each.dtype} for each in parts.outputs],
        "arguments": [
            {"tensor": True} if isinstance(each, Tensor) else {"value": each}
            for each in workload.inputs
        ],
        "dtype": dtype if dtype in _PRODUCTS else "float32",
    }
