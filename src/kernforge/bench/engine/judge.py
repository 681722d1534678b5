# SPDX-License-Identifier: Apache-2.0
"""The process that decides: it draws the inputs, keeps the clock, and looks at the results.

Every candidate of a workload has a fresh process, and all take turns in random order; who is not on
turn is stopped. A turn is several calls, each timed by the worker. When the worker says that it is
done, the judge reads its own clock, stops every thread of the worker, and only then chooses which
results to look at. What the worker's clock leaves out must fit into what an empty call costs.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import nvml, samples, verify
from kernforge.bench.engine import workload as engine_workload
from kernforge.bench.engine.runner import START_S, Field
from kernforge.bench.engine.samples import Measured, Timed
from kernforge.bench.engine.workload import NOTHING, PRODUCT, Candidate, Settings, Tensor, Workload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor as Torch

    from kernforge.bench.engine.nvml import Gpu
    from kernforge.bench.engine.runner import Runner
    from kernforge.bench.engine.throttle import Reading
    from kernforge.bench.engine.workload import Layout, Mode

_SPOT_CHECKS = 4
_LOOK_AGAIN = 12  # Rounds before somebody is refused for what may be the machine's doing.
# Copies of a turn's tensors: that a worker may keep, and that the judge needs to look at them.
_KEPT, _JUDGES = 3, 12
_WARM_UP = -1  # The number of the first row that is not counted; they go down from there.
_PRODUCTS = ("float32", "float16", "bfloat16", "float64")


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
    gpu: Gpu | None = None,
) -> Iterator[list[Measured]]:
    """Measure candidates on workloads, beside an empty call, a copy and a matrix product.

    Each candidate has one process for all of them, started fresh.

    Args:
        workloads: what is computed, one after the other.
        candidates: who computes it.
        settings: how often, in which modes, on which device.
        note: told what happens.
        gpu: asked for its clocks around every turn; None: the one that is measured.

    Yields:
        what came of each workload.

    Raises:
        UsageError: the exchange does not fit into memory, or a workload contradicts itself.
        MachineError: the GPU's driver refuses what the engine needs.
    """
    gpu = gpu or nvml.open_gpu(settings.device)
    set_up = any(each.entry for each in candidates)
    trials = [_Trial(each, settings, gpu, set_up=set_up) for each in workloads]
    field = Field(candidates, settings, max(trial.size for trial in trials))
    try:
        field.start(counts=any(trial.flops for trial in trials))
        for trial in trials:
            yield trial.run(field.runners, note)
    finally:
        field.close()


@dataclass(slots=True)
class _Drawn:
    """Inputs of one turn, the same for everyone, and what is right for those looked at so far."""

    given: list[tuple[Any, ...]]
    wanted: dict[int, tuple[Torch, ...]] = field(default_factory=dict)


class _Trial:
    """One workload, and who computes it."""

    def __init__(
        self, workload: Workload, settings: Settings, gpu: Gpu | None, *, set_up: bool
    ) -> None:
        import torch  # noqa: PLC0415

        self._workload, self._settings = workload, settings
        self._gpu, self._set_up = gpu, set_up
        self._reading: tuple[Reading, ...] = ()
        seed = settings.seed or secrets.randbits(63)
        self._random = torch.Generator(device=settings.device).manual_seed(seed)
        first = verify.draw(workload, self._random)
        self.flops = verify.counted_flops(workload, first)
        self._layout: Layout = verify.layout(workload, verify.expected(workload, first))
        self._drawn: dict[tuple[Mode, int], _Drawn] = {}
        self._call_bytes = max(self._layout.set_bytes, sum(workload.held))
        self._runners: list[Runner] = []
        # Where the judge's own clock is sharp: no flush, and all that the host waits for is told.
        self._sharp: Mode = "launch" if settings.device == "cuda" else "hot"
        self._modes = tuple(dict.fromkeys((*settings.modes, "hot", self._sharp)))
        self._tight = False
        self._most = max(self._calls_in(mode, 0.0) for mode in self._modes)
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
        for calls in (1, 2, 4):
            drawn = self._draw(min(calls, self._calls_in("hot", 0.0)))
            answer = self._turn(runner, drawn, len(drawn.given), "hot")
            if answer is None:
                return
            runner.call_s = min(answer["times"]) / 1e9

    def _draw(self, calls: int) -> _Drawn:
        return _Drawn([verify.draw(self._workload, self._random) for _ in range(calls)])

    def _inputs(self, mode: Mode, row: int, calls: int) -> _Drawn:
        """Inputs of a round's turn: the same for everyone, and no other turn's."""
        if self._tight:
            return self._draw(calls)
        drawn = self._drawn.setdefault((mode, row), _Drawn([]))
        drawn.given += self._draw(calls - len(drawn.given)).given
        return drawn

    def _rounds(self, note: Callable[[str], None]) -> None:
        """Let everyone take turns until the medians are sure."""
        least, most, again = self._settings.least, self._settings.most, 0
        racing = self._runners
        for turn in range(most + _LOOK_AGAIN):
            self._round(racing, turn, note)
            ended = turn + 1 >= most or (turn + 1 >= least and self._sure())
            # A busy machine lengthens turns, and nobody is refused for that.
            doubted = [runner for runner, _ in self._doubts()] if ended else []
            if ended and (again == _LOOK_AGAIN or not doubted):
                return
            again += ended
            # Doubts come of a candidate's own turns and of the empty call's: nobody else is asked.
            racing = [*doubted, self._nothing()] if ended else self._runners

    def _round(self, asked: list[Runner], turn: int, note: Callable[[str], None]) -> None:
        """Let each of them who is not refused take a turn in each mode."""
        racing = {r.candidate.name: r for r in asked if not r.refused}
        self._drawn = {}
        for name in engine_workload.turns(sorted(racing), self._settings.seed, turn):
            runner = racing[name]
            runner.partner.resume()
            if self._tight:  # Memory that is new to a process is slower the first time.
                calls = self._calls_in("hot", runner.call_s)
                self._turn(runner, self._draw(calls), calls, "hot")
            for mode in self._modes:
                if mode != "launch" or self._tight:
                    self._one_turn(runner, mode, turn)
            self._leave(runner)
            runner.partner.pause()
        if "launch" in self._modes and not self._tight:
            self._rows(list(racing.values()), turn)
        for name, runner in racing.items():
            if runner.refused and runner.candidate.file:
                note(f"{self._workload.name}: {name} is refused: {runner.refused}")

    def _leave(self, runner: Runner) -> None:
        """Have a candidate's memory for the next one, where the GPU has not enough for all."""
        if self._tight and not runner.refused:
            runner.ask(self._settings.patience_s, do="leave")

    def _calls_in(self, mode: Mode, call_s: float) -> int:
        """Calls of a turn in a mode."""
        return engine_workload.calls_of(
            call_s, self._call_bytes, self._settings, mode, set_up=self._set_up
        )

    def _one_turn(self, runner: Runner, mode: Mode, number: int) -> None:
        """A candidate's part of a round in one mode."""
        if runner.refused or mode in runner.skipped:
            return
        calls = self._calls_in(mode, runner.call_s)
        self._reading = self._read()
        self._turn(runner, self._inputs(mode, number, calls), calls, mode, number=number)

    def _rows(self, racing: list[Runner], turn: int) -> None:
        """Everyone's rows by the host's clock, one each and then again: what is compared lies close."""
        named = {runner.candidate.name: runner for runner in racing}
        # Where nobody asked for the mode, it is there for the judge's clock alone.
        asked = "launch" in self._settings.modes
        for row in range(engine_workload.MOST_ROWS if asked and not self._set_up else 1):
            number = turn * engine_workload.MOST_ROWS + row
            for name in engine_workload.turns(sorted(named), self._settings.seed, number):
                runner = named[name]
                calls = self._calls_in("launch", runner.call_s)
                rows = engine_workload.rows_of(calls * runner.call_s, self._settings)
                if runner.refused or row >= rows:
                    continue
                runner.partner.resume()
                if asked:  # A process that was stopped is slow at first.
                    few = min(calls, engine_workload.WARM_UP)
                    self._turn(runner, self._inputs("launch", _WARM_UP - row, few), few, "launch")
                self._one_turn(runner, "launch", number)
                runner.partner.pause()

    def _read(self) -> tuple[Reading, ...]:
        return (self._gpu.reading(),) if self._gpu else ()

    def _settle(self, drawn: _Drawn) -> None:
        """Let what the judge has queued on the device be done before a worker goes on."""
        import torch  # noqa: PLC0415

        if self._settings.device == "cuda":
            torch.cuda.synchronize()
            if self._tight:
                drawn.wanted.clear()
                torch.cuda.empty_cache()

    def _sure(self) -> bool:
        return all(
            samples.sure(turns, self._settings.width)
            for runner in self._runners
            if runner.candidate.file and not runner.refused
            for turns in runner.turns.values()
        )

    def _turn(
        self, runner: Runner, drawn: _Drawn, calls: int, mode: Mode, number: int | None = None
    ) -> dict[str, Any] | None:
        """One turn: times, with the judge's clock beside them, and a look at the results.

        ``number`` is that of the round; None: the times are not kept.
        """
        patience, given = self._settings.patience_s, drawn.given[:calls]
        looks = number is not None or mode == "hot"
        runner.exchange.put(given)
        self._settle(drawn)
        began, worked = time.perf_counter_ns(), runner.partner.cpu_ns()
        if runner.ask(patience, do="prepare", calls=len(given)) is None:
            return None
        start = time.perf_counter_ns()
        # On a busy machine the one is long, and of several threads the other.
        prepared = min(start - began, runner.partner.cpu_ns() - worked)
        answer = runner.ask(patience, do="go", mode=mode)
        wall = time.perf_counter_ns() - start
        runner.partner.pause()
        try:
            if answer is not None and isinstance(answer.get("skipped"), str):
                runner.skipped[mode] = answer["skipped"]
                return None
            if answer is None or not runner.plausible(answer, mode, len(given)):
                return None
            if runner.candidate.file and looks:
                self._look(runner, drawn, calls)
        finally:
            self._settle(drawn)
            runner.partner.resume()
        if not runner.refused and runner.candidate.file and looks:
            self._look_at_inputs(runner, given)
        if number is not None:
            before, self._reading = self._reading, self._read()
            turn = Timed(
                round=number,
                calls=calls,
                times=tuple(answer["times"]),
                readings=(*before, *self._reading),
            )
            runner.keep(mode, turn, (prepared, wall) if mode == self._sharp else None)
        return None if runner.refused else answer

    def _collected(self, runner: Runner) -> bool:
        """Have a stopped worker hand over what it puts together only now."""
        runner.partner.resume()
        answer = runner.ask(self._settings.patience_s, do="results")
        runner.partner.pause()
        return answer is not None

    def _look(self, runner: Runner, drawn: _Drawn, calls: int) -> None:
        """Compare results of calls that nobody could foresee; all are taken out first."""
        if self._workload.late and not self._collected(runner):
            return
        results = runner.exchange.results(calls)
        picked = secrets.SystemRandom().sample(range(calls), k=min(_SPOT_CHECKS, calls))
        for number in sorted(picked):
            if number not in drawn.wanted:
                right = verify.expected(self._workload, drawn.given[number])
                drawn.wanted[number] = right
            wanted = drawn.wanted[number]
            wrong = verify.difference(self._workload, results[number], wanted)
            runner.checked += 1
            if wrong:
                runner.refused = f"call {number} of {calls}: {wrong}"
                return

    def _look_at_inputs(self, runner: Runner, given: list[tuple[Any, ...]]) -> None:
        if runner.ask(self._settings.patience_s, do="inputs") is None:
            return
        changed = runner.exchange.changed_inputs(given, self._workload.inplace)
        if changed is not None:
            runner.refused = f"call {changed} of {len(given)} changed its inputs"

    def _measured(self) -> list[Measured]:
        """What came of everyone, the clocks held against each other."""
        for runner, doubt in self._doubts():
            runner.refused = doubt
        return [self._one(runner, mode) for runner in self._runners for mode in self._modes]

    def _nothing(self) -> Runner:
        return next(r for r in self._runners if r.candidate == NOTHING)

    def _doubts(self) -> list[tuple[Runner, str]]:
        nothing = self._nothing()
        asked = [r for r in self._runners if r.candidate.file and not r.refused]
        return [(runner, doubt) for runner in asked if (doubt := runner.doubt(nothing))]

    def _one(self, runner: Runner, mode: Mode) -> Measured:
        return Measured(
            candidate=runner.candidate.name,
            kind=runner.candidate.kind,
            workload=self._workload.name,
            mode=mode,
            kept=samples.keep(runner.turns.get(mode, [])),
            checked=runner.checked,
            refused=runner.refused,
            skipped=runner.skipped.get(mode, ""),
            moved=self.moved,
            flops=self.flops,
        )


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
