# SPDX-License-Identifier: Apache-2.0
"""The process that decides: it draws the inputs, keeps the clock, and checks the results.

Every candidate of a workload has a fresh process, and all take turns in random order; a process that
does not have its turn is stopped. A turn is several calls, each timed by the worker. When the worker
reports that it is done, the judge reads its own clock, stops every thread of the worker, and only
then chooses which results to check. What the worker's clock leaves out must fit into the cost of an
empty call.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import nvml, samples, stats, verify
from kernforge.bench.engine import workload as engine_workload
from kernforge.bench.engine.messages import (
    Argument,
    BeginWorkload,
    CollectInputs,
    CollectResults,
    Measure,
    Prepare,
    ReleaseMemory,
    Skipped,
    Times,
)
from kernforge.bench.engine.runner import START_S, CandidateField
from kernforge.bench.engine.samples import Measurement, TimedTurn
from kernforge.bench.engine.workload import (
    COPY,
    NOTHING,
    PRODUCT,
    Candidate,
    Layout,
    Settings,
    Tensor,
    Workload,
)
from kernforge.errors import UsageError
from kernforge.system.progress_lines import EVERY_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from torch import Tensor as Torch

    from kernforge.bench.engine.nvml import Gpu
    from kernforge.bench.engine.runner import CandidateProcess
    from kernforge.bench.engine.samples import Reading
    from kernforge.bench.engine.workload import Mode

_SPOT_CHECKS = 4
_LOOK_AGAIN = 12  # Rounds before a candidate is refused for what may be the machine's doing.
# Copies of a turn's tensors: that a worker may keep, and that the judge needs to look at them.
_KEPT, _JUDGES = 3, 12
_WARM_UP = -1  # The number of the first row that is not counted; they go down from there.
_PRODUCTS = ("float32", "float16", "bfloat16", "float64")


class InterruptedTrial(KeyboardInterrupt):
    """A workload was interrupted; ``measurements`` is what was measured of it until then."""

    def __init__(self, measurements: list[Measurement]) -> None:
        super().__init__()
        self.measurements = measurements


def measure_all(
    workloads: Sequence[Workload],
    candidates: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
    gpu: Gpu | None = None,
) -> Iterator[list[Measurement]]:
    """Measure candidates on workloads, together with an empty call, a copy and a matrix product.

    Each candidate has one fresh process for all workloads.

    Args:
        gpu: the GPU whose clocks are read around every turn; None: it is opened here.

    Yields:
        The measurements of each workload.

    Raises:
        UsageError: the exchange does not fit into memory, a workload contradicts itself, or two
            candidates have the same name.
        MachineError: the GPU's driver refuses what the engine needs.
        InterruptedTrial: an interrupt came while a workload was measured.
    """
    names = [each.name for each in (*candidates, NOTHING, COPY, PRODUCT)]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two candidates are called {twice[0]!r}",
            hint=f"give each its own name; {NOTHING.name}, {COPY.name} and {PRODUCT.name} are measured "
            "beside them",
        )
    gpu = gpu or nvml.open_gpu(settings.device)
    set_up = any(each.entry for each in candidates)
    trials = [_Trial(each, settings, gpu, set_up=set_up) for each in workloads]
    field = CandidateField(candidates, settings, max(trial.size for trial in trials))
    try:
        field.start(counts=any(trial.flops for trial in trials))
        for trial in trials:
            yield trial.run(field.processes, note)
    finally:
        field.close()


@dataclass(slots=True)
class _Drawn:
    """Inputs of one turn, the same for all candidates, and the expected results computed so far."""

    given: list[tuple[Any, ...]]
    wanted: dict[int, tuple[Torch, ...]] = field(default_factory=dict)


class _Trial:
    """One workload, and the processes that compute it."""

    def __init__(
        self, workload: Workload, settings: Settings, gpu: Gpu | None, *, set_up: bool
    ) -> None:
        import torch

        self._workload, self._settings = workload, settings
        self._gpu, self._set_up = gpu, set_up
        self._reading: tuple[Reading, ...] = ()
        self._seed = settings.seed or secrets.randbits(63)
        self._random = torch.Generator(device=settings.device).manual_seed(self._seed)
        first = verify.draw(workload, self._random)
        self.flops = verify.counted_flops(workload, first)
        self._layout: Layout = verify.layout(workload, verify.expected(workload, first))
        self._drawn: dict[tuple[Mode, int], _Drawn] = {}
        self._call_bytes = max(self._layout.set_bytes, sum(workload.held))
        self._cache_bytes = _cache_bytes(settings.device)
        self._processes: list[CandidateProcess] = []
        # The mode in which the judge's own clock is sharp: no flush, and the host's waits are counted.
        self._sharp: Mode = "launch" if settings.device == "cuda" else "hot"
        self._modes = tuple(dict.fromkeys((*settings.modes, "hot", self._sharp)))
        self._tight = False
        self._most = max(self._calls_in(mode, 0.0) for mode in self._modes)
        self.size = self._layout.set_bytes * self._most

    @property
    def moved(self) -> int:
        """Bytes that must be moved at least."""
        if self._workload.bytes is not None:
            return self._workload.bytes
        return sum(part.nbytes for part in (*self._layout.inputs, *self._layout.outputs))

    def run(
        self, processes: list[CandidateProcess], note: Callable[[str], None]
    ) -> list[Measurement]:
        """Let all of them compute it."""
        self._processes = [r for r in processes if self.flops or r.candidate != PRODUCT]
        self._tight = self._is_tight()
        for process in self._processes:
            process.begin(self._layout)
            process.skipped.update(self._impossible())
            if not process.refused:
                process.pipes.resume()
                # The engine's own candidates hold as much memory as the others.
                held = () if process.candidate.entry else self._workload.held
                if process.ask(START_S, self._task(held)) is not None:
                    self._warm_up(process)
                self._leave(process)
                process.pipes.pause()
        try:
            self._rounds(note)
        except KeyboardInterrupt as error:
            raise InterruptedTrial(self._measurements()) from error
        return self._measurements()

    def _impossible(self) -> dict[str, str]:
        """Modes that no candidate has here, with the reason."""
        why: dict[str, str] = {}
        if not engine_workload.fits_cache(self._call_bytes, self._cache_bytes):
            why["graph-hot"] = "a call's tensors do not fit into half of the L2 cache"
        if self._tight:
            why |= dict.fromkeys(
                engine_workload.GRAPHS, "the GPU has no room for a graph's own tensors"
            )
        return why

    def _task(self, held: tuple[int, ...]) -> BeginWorkload:
        """The workload for a worker, without the reference."""
        workload, layout = self._workload, self._layout
        dtype = workload.tensors[0].dtype if workload.tensors else "float32"
        return BeginWorkload(
            layout=Layout(inputs=_plain(layout.inputs), outputs=_plain(layout.outputs)),
            arguments=tuple(
                Argument(is_tensor=True) if isinstance(each, Tensor) else Argument(value=each)
                for each in workload.inputs
            ),
            inplace=tuple(workload.inplace),
            late=workload.late,
            held=held,
            bytes=self.moved,
            dtype=dtype if dtype in _PRODUCTS else "float32",
        )

    def _is_tight(self) -> bool:
        """Whether the GPU is too small for all processes to keep what a call needs."""
        import torch

        if self._settings.device == "cpu":
            return False
        torch.cuda.empty_cache()
        free: int = torch.cuda.mem_get_info()[0]
        whole = self._call_bytes * self._most
        return whole * (_KEPT * len(self._processes) + _JUDGES) > free

    def _warm_up(self, process: CandidateProcess) -> None:
        for calls in (1, 2, 4):
            drawn = self._draw(min(calls, self._calls_in("hot", 0.0)))
            reply = self._turn(process, drawn, len(drawn.given), "hot")
            if reply is None:
                return
            process.call_s = min(reply.times) / 1e9

    def _draw(self, calls: int) -> _Drawn:
        return _Drawn([verify.draw(self._workload, self._random) for _ in range(calls)])

    def _inputs(self, mode: Mode, row: int, calls: int) -> _Drawn:
        """Inputs of a round's turn: the same for all candidates, and of no other turn."""
        if self._tight:
            return self._draw(calls)
        drawn = self._drawn.setdefault((mode, row), _Drawn([]))
        drawn.given += self._draw(calls - len(drawn.given)).given
        return drawn

    def _rounds(self, note: Callable[[str], None]) -> None:
        """Let all processes take turns until the medians are sure."""
        least, most, again = self._settings.least, self._settings.most, 0
        racing = self._processes
        start = said = time.monotonic()
        for turn in range(most + _LOOK_AGAIN):
            self._round(racing, turn, note)
            if (now := time.monotonic()) - said >= EVERY_S:
                said = now
                note(
                    f"  {self._workload.name}: {turn + 1} of at most {most} rounds ({now - start:.0f} s)"
                )
            ended = turn + 1 >= most or (turn + 1 >= least and self._sure())
            # A busy machine lengthens turns; that is no reason to refuse a candidate.
            doubted = [process for process, _ in self._doubts()] if ended else []
            if ended and (again == _LOOK_AGAIN or not doubted):
                return
            again += ended
            # A doubt depends on the candidate's own turns and on the empty call's, and on no other.
            racing = [*doubted, self._nothing()] if ended else self._processes

    def _round(self, asked: list[CandidateProcess], turn: int, note: Callable[[str], None]) -> None:
        """Let each process that is not refused take a turn in each mode."""
        racing = {r.candidate.name: r for r in asked if not r.refused}
        self._drawn = {}
        for name in self.order(racing, turn):
            process = racing[name]
            process.pipes.resume()
            if self._tight:  # Memory that is new to a process is slower the first time.
                calls = self._calls_in("hot", process.call_s)
                self._turn(process, self._draw(calls), calls, "hot")
            for mode in self._modes:
                if mode != "launch" or self._tight:
                    self._one_turn(process, mode, turn)
            self._leave(process)
            process.pipes.pause()
        if "launch" in self._modes and not self._tight:
            self._rows(list(racing.values()), turn)
        for name, process in racing.items():
            if process.refused and process.candidate.file:
                note(f"{self._workload.name}: {name} is refused: {process.refused}")

    def order(self, names: Iterable[str], turn: int) -> list[str]:
        """The candidates in the random order of a round."""
        return engine_workload.turns(sorted(names), self._seed, turn)

    def _leave(self, process: CandidateProcess) -> None:
        """Free a process's memory for the next one, where the GPU has not enough for all."""
        if self._tight and not process.refused:
            process.ask(self._settings.patience_s, ReleaseMemory())

    def _calls_in(self, mode: Mode, call_s: float) -> int:
        """Calls of a turn in a mode."""
        return engine_workload.calls_of(
            call_s,
            self._call_bytes,
            self._settings,
            mode,
            set_up=self._set_up,
            cache_bytes=self._cache_bytes,
        )

    def _one_turn(self, process: CandidateProcess, mode: Mode, number: int) -> None:
        """A candidate's part of a round in one mode."""
        if process.refused or mode in process.skipped:
            return
        calls = self._calls_in(mode, process.call_s)
        self._reading = self._read()
        self._turn(process, self._inputs(mode, number, calls), calls, mode, number=number)

    def _rows(self, racing: list[CandidateProcess], turn: int) -> None:
        """Rows by the host's clock, one of each process and then again: what is compared is close."""
        named = {process.candidate.name: process for process in racing}
        # Where the mode is not asked for, it is measured for the judge's clock alone.
        asked = "launch" in self._settings.modes
        for row in range(engine_workload.MOST_ROWS if asked and not self._set_up else 1):
            number = turn * engine_workload.MOST_ROWS + row
            for name in self.order(named, number):
                process = named[name]
                calls = self._calls_in("launch", process.call_s)
                rows = engine_workload.rows_of(calls * process.call_s, self._settings)
                if process.refused or "launch" in process.skipped or row >= rows:
                    continue
                process.pipes.resume()
                if asked:  # A process that was stopped is slow at first.
                    few = min(calls, engine_workload.WARM_UP)
                    self._turn(process, self._inputs("launch", _WARM_UP - row, few), few, "launch")
                self._one_turn(process, "launch", number)
                process.pipes.pause()

    def _read(self) -> tuple[Reading, ...]:
        return (self._gpu.reading(),) if self._gpu else ()

    def _settle(self, drawn: _Drawn) -> None:
        """Let what the judge has queued on the device be done before a worker goes on."""
        import torch

        if self._settings.device == "cuda":
            torch.cuda.synchronize()
            if self._tight:
                drawn.wanted.clear()
                torch.cuda.empty_cache()

    def _sure(self) -> bool:
        return all(
            stats.narrow_enough(samples.keep(turns).rounds, self._settings.width)
            for process in self._processes
            if process.candidate.file and not process.refused
            for turns in process.turns.values()
        )

    def _turn(
        self,
        process: CandidateProcess,
        drawn: _Drawn,
        calls: int,
        mode: Mode,
        number: int | None = None,
    ) -> Times | None:
        """One turn: times by the worker's clock and the judge's, and a check of the results.

        Args:
            drawn: inputs of at least so many calls.
            number: number of the round; None: the times are not kept.
        """
        patience, given = self._settings.patience_s, drawn.given[:calls]
        checks = number is not None or mode == "hot"
        process.exchange.put(given)
        self._settle(drawn)
        began, worked = time.perf_counter_ns(), process.pipes.cpu_ns()
        if process.ask(patience, Prepare(calls=len(given))) is None:
            return None
        start = time.perf_counter_ns()
        # On a busy machine the wall time is long, of several threads the processor time.
        prepared = min(start - began, process.pipes.cpu_ns() - worked)
        reply = process.ask(patience, Measure(mode=mode), (Times, Skipped))
        wall = time.perf_counter_ns() - start
        process.pipes.pause()
        try:
            if isinstance(reply, Skipped):
                modes = self._modes if reply.in_all_modes else (mode,)
                process.skipped.update(dict.fromkeys(modes, reply.why))
            if not isinstance(reply, Times) or not process.plausible(reply, mode, len(given)):
                return None
            if process.candidate.file and checks:
                self._check_results(process, drawn, calls)
        finally:
            self._settle(drawn)
            process.pipes.resume()
        if not process.refused and process.candidate.file and checks:
            self._check_inputs(process, given)
        if number is not None:
            before, self._reading = self._reading, self._read()
            turn = TimedTurn(
                round=number,
                calls=calls,
                times=reply.times,
                readings=(*before, *self._reading),
            )
            process.keep(mode, turn, (prepared, wall) if mode == self._sharp else None)
        return None if process.refused else reply

    def _collect(self, process: CandidateProcess) -> bool:
        """Let a stopped worker hand over results that it puts together only now."""
        process.pipes.resume()
        reply = process.ask(self._settings.patience_s, CollectResults())
        process.pipes.pause()
        return reply is not None

    def _check_results(self, process: CandidateProcess, drawn: _Drawn, calls: int) -> None:
        """Check the results of calls that are chosen at random; all results are taken out first."""
        if self._workload.late and not self._collect(process):
            return
        results = process.exchange.results(calls)
        picked = secrets.SystemRandom().sample(range(calls), k=min(_SPOT_CHECKS, calls))
        for number in sorted(picked):
            if number not in drawn.wanted:
                drawn.wanted[number] = verify.expected(self._workload, drawn.given[number])
            wanted = drawn.wanted[number]
            wrong = verify.difference(self._workload, results[number], wanted)
            process.checked += 1
            if wrong:
                process.refused = f"call {number} of {calls}: {wrong}"
                return

    def _check_inputs(self, process: CandidateProcess, given: list[tuple[Any, ...]]) -> None:
        if process.ask(self._settings.patience_s, CollectInputs()) is None:
            return
        changed = process.exchange.changed_inputs(given, self._workload.inplace)
        if changed is not None:
            process.refused = f"call {changed} of {len(given)} changed its inputs"

    def _measurements(self) -> list[Measurement]:
        """All measurements; a candidate whose clocks disagree is refused."""
        for process, doubt in self._doubts():
            process.refused = doubt
        return [
            self._measurement(process, mode) for process in self._processes for mode in self._modes
        ]

    def _nothing(self) -> CandidateProcess:
        return next(r for r in self._processes if r.candidate == NOTHING)

    def _doubts(self) -> list[tuple[CandidateProcess, str]]:
        nothing = self._nothing()
        asked = [r for r in self._processes if r.candidate.file and not r.refused]
        return [(process, doubt) for process in asked if (doubt := process.doubt(nothing))]

    def _measurement(self, process: CandidateProcess, mode: Mode) -> Measurement:
        return Measurement(
            candidate=process.candidate.name,
            kind=process.candidate.kind,
            workload=self._workload.name,
            mode=mode,
            kept=samples.keep(process.turns.get(mode, [])),
            checked=process.checked,
            refused=process.refused,
            skipped=process.skipped.get(mode, ""),
            moved=self.moved,
            flops=self.flops,
        )


def _plain(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Shapes and types alone."""
    return tuple(Tensor(shape=each.shape, dtype=each.dtype) for each in tensors)


def _cache_bytes(device: str) -> int:
    """Size of the GPU's L2 cache; 0 on a CPU, which has no mode that needs it."""
    if device == "cpu":
        return 0
    import torch

    size: int = torch.cuda.get_device_properties(0).L2_cache_size
    return size
