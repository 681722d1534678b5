# SPDX-License-Identifier: Apache-2.0
"""The process that decides: it draws the inputs, keeps the clock, and looks at the results.

Every candidate of a workload has a fresh process, and all take turns in random order; who is not on
turn is stopped. A turn is several calls, each timed by the worker. When the worker says that it is
done, the judge reads its own clock, stops every thread of the worker, and only then chooses which
results to look at. What the worker's clock leaves out must fit into what an empty call costs.
"""

from __future__ import annotations

import json
import secrets
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge import bench_check, bench_plan, bench_stats, files
from kernforge.bench_plan import COPY, NOTHING, PRODUCT, Candidate, Settings, Tensor, Workload
from kernforge.run import Command, Partner

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernforge.bench_plan import Layout, Mode

_START_S = 600.0  # torch.compile's tuning may take minutes.
_SPOT_CHECKS = 4
_FLUSHED_CALLS = 8  # A flush takes longer than many a call.
# Rows and columns of the matrices whose product is the arithmetic ceiling.
SIDE = {"cpu": 512, "cuda": 8192}
_PRODUCTS = ("float32", "float16", "bfloat16", "float64")
_HIDDEN_SHARE = 0.5
_HIDDEN_NS = 3_000_000.0
_EMPTY_SHARE = 2.0  # Caches and page tables make one worker's empty call dearer than another's.
_COLD_SHARE = 0.5


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


@dataclass(slots=True, kw_only=True)
class _Runner:
    """A candidate's process and what it has shown so far."""

    candidate: Candidate
    partner: Partner
    exchange: bench_check.Exchange
    calls: int = 1
    refused: str = ""
    checked: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    clocks: dict[str, list[float | None]] = field(default_factory=dict)
    untimed: list[tuple[float, float, int]] = field(default_factory=list)

    def ask(self, seconds: float, **wanted: Any) -> dict[str, Any] | None:
        """Its answer; None, and refused, when it gives none."""
        self.partner.send(json.dumps(wanted))
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any] | None:
        line = self.partner.receive(seconds)
        answer = _document(line)
        if answer is None:
            said = self.partner.last_words()
            self.refused = "its process ended, hung or answered nonsense" + (
                f": {said}" if said else ""
            )
        elif "refused" in answer:
            self.refused = str(answer["refused"])
        return None if self.refused else answer


def _document(line: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(line) if line is not None else None
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def measure(
    workload: Workload,
    candidates: Sequence[Candidate],
    settings: Settings,
    note: Callable[[str], None],
) -> list[Measured]:
    """Measure candidates on a workload, beside an empty call, a copy and a matrix product.

    Args:
        workload: what is computed.
        candidates: who computes it.
        settings: how often, in which modes, on which device.
        note: told what happens.

    Raises:
        UsageError: the exchange does not fit into memory, or the workload contradicts itself.
    """
    shm = Path("/dev/shm")  # noqa: S108 - a staging directory of our own in it
    with files.staging(shm if shm.is_dir() else Path.cwd() / ".kernforge") as place:
        trial = _Trial(workload, candidates, settings, place)
        try:
            trial.start()
            trial.rounds(note)
        finally:
            trial.close()
        return trial.measured()


class _Trial:
    """All candidates of one workload."""

    def __init__(
        self,
        workload: Workload,
        candidates: Sequence[Candidate],
        settings: Settings,
        place: Path,
    ) -> None:
        import torch  # noqa: PLC0415

        self._workload, self._settings, self._place = workload, settings, place
        self._random = torch.Generator().manual_seed(settings.seed or secrets.randbits(63))
        self._candidates = (*candidates, NOTHING, COPY, *((PRODUCT,) if workload.flops else ()))
        first = bench_check.draw(workload, self._random)
        self._layout: Layout = bench_check.layout(workload, bench_check.expected(workload, first))
        self._most = bench_plan.calls_of(0.0, self._layout.set_bytes, settings)
        self._runners: list[_Runner] = []
        # Where the judge's own clock is sharp: no flush, and all that the host waits for is told.
        self._sharp: Mode = "launch" if settings.device == "cuda" else "hot"
        self._modes = tuple(dict.fromkeys((*settings.modes, "hot", self._sharp)))

    @property
    def moved(self) -> int:
        """Bytes that must be moved at least."""
        return _moved(self._workload, self._layout)

    def start(self) -> None:
        """Start all processes together, then let one after the other warm up."""
        for number, candidate in enumerate(self._candidates):
            path = self._place / f"{number}.bin"
            exchange = bench_check.Exchange(path, self._layout, self._most)
            spec = _spec(self._workload, candidate, self._settings.device, self._layout)
            spec |= {"exchange": str(path), "size": exchange.size, "bytes": self.moved}
            argv = (sys.executable, "-m", "kernforge.bench_worker", json.dumps(spec))
            runner = _Runner(
                candidate=candidate, partner=Partner(Command(argv=argv)), exchange=exchange
            )
            self._runners.append(runner)
        for runner in self._runners:
            runner.hear(_START_S)
            runner.partner.pause()
        for runner in self._runners:
            if not runner.refused:
                runner.partner.resume()
                self._warm_up(runner)
                runner.partner.pause()

    def _warm_up(self, runner: _Runner) -> None:
        call_s = 0.0
        for calls in (1, 2, 4):
            given = self._draw(min(calls, self._most))
            answer = self._turn(runner, given, "hot", keep=False)
            if answer is None:
                return
            call_s = min(answer["times"]) / 1e9
        runner.calls = bench_plan.calls_of(call_s, self._layout.set_bytes, self._settings)

    def _draw(self, calls: int) -> list[tuple[Any, ...]]:
        return [bench_check.draw(self._workload, self._random) for _ in range(calls)]

    def rounds(self, note: Callable[[str], None]) -> None:
        """Let everyone take turns until the medians are sure."""
        for turn in range(self._settings.most):
            racing = {r.candidate.name: r for r in self._runners if not r.refused}
            calls = max((r.calls for r in racing.values()), default=1)
            given = self._draw(calls)
            for name in bench_plan.turns(sorted(racing), self._settings.seed, turn):
                runner = racing[name]
                runner.partner.resume()
                mine = given[: runner.calls]
                for mode in self._modes:
                    if runner.refused:
                        break
                    if mode in runner.skipped:
                        continue
                    few = len(mine) if mode in ("hot", self._sharp) else _FLUSHED_CALLS
                    self._turn(runner, mine[:few], mode, keep=True)
                runner.partner.pause()
                if runner.refused and runner.candidate.file:
                    note(f"{self._workload.name}: {name} is refused: {runner.refused}")
            if turn + 1 >= self._settings.least and self._sure():
                return

    def _sure(self) -> bool:
        return all(
            bench_stats.narrow_enough(times, self._settings.width)
            for runner in self._runners
            if runner.candidate.file and not runner.refused
            for times in runner.times.values()
        )

    def _turn(
        self, runner: _Runner, given: list[tuple[Any, ...]], mode: Mode, *, keep: bool
    ) -> dict[str, Any] | None:
        """One turn: times, with the judge's clock beside them, and a look at the results."""
        patience = self._settings.patience_s
        for number, each in enumerate(given):
            runner.exchange.put(number, each)
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
            runner.partner.resume()
        if not runner.refused and runner.candidate.file:
            self._look_at_inputs(runner, given)
        if keep:
            runner.times.setdefault(mode, []).extend(answer["times"])
            runner.clocks.setdefault(mode, []).extend(answer["clocks"])
            if mode == self._sharp:
                told = statistics.fmean(answer["times"]) * len(given)
                runner.untimed.append((wall, told, len(given)))
        return None if runner.refused else answer

    def _look(self, runner: _Runner, given: list[tuple[Any, ...]]) -> None:
        """Compare results of calls that nobody could foresee; all are taken out first."""
        results = [runner.exchange.results(number) for number in range(len(given))]
        picked = secrets.SystemRandom().sample(range(len(given)), k=min(_SPOT_CHECKS, len(given)))
        for number in sorted(picked):
            wanted = bench_check.expected(self._workload, given[number])
            wrong = bench_check.difference(self._workload, results[number], wanted)
            runner.checked += 1
            if wrong:
                runner.refused = f"call {number} of {len(given)}: {wrong}"
                return

    def _look_at_inputs(self, runner: _Runner, given: list[tuple[Any, ...]]) -> None:
        if runner.ask(self._settings.patience_s, do="inputs") is None:
            return
        for number, each in enumerate(given):
            if runner.exchange.changed_inputs(number, each, self._workload.inplace):
                runner.refused = f"call {number} of {len(given)} changed its inputs"
                return

    def close(self) -> None:
        """End every process."""
        for runner in self._runners:
            runner.partner.kill()

    def measured(self) -> list[Measured]:
        """What came of everyone, the clocks held against each other."""
        nothing = next(r for r in self._runners if r.candidate == NOTHING)
        for runner in self._runners:
            if runner.candidate.file and not runner.refused:
                runner.refused = hidden_time(runner.untimed, nothing.untimed) or _told_apart(
                    runner.times
                )
        return [self._one(runner, mode) for runner in self._runners for mode in self._modes]

    def _one(self, runner: _Runner, mode: Mode) -> Measured:
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
        )


def _plausible(answer: dict[str, Any], mode: Mode, calls: int, runner: _Runner) -> bool:
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


def hidden_time(
    turns: Sequence[tuple[float, float, int]], empty: Sequence[tuple[float, float, int]]
) -> str:
    """Why a worker's clock cannot be believed; empty when it can.

    Args:
        turns: of each turn of a candidate without a flush, the nanoseconds of the judge's clock, the sum of
            what the worker reported, and the number of calls.
        empty: likewise of calls that do nothing.
    """
    if not turns or not empty:
        return ""
    # A busy machine lengthens single turns; the best turn is what must be explained.
    cost = min((wall - told) / calls for wall, told, calls in empty)
    excess, told, calls = min(
        (wall - told - _EMPTY_SHARE * cost * calls, told, calls) for wall, told, calls in turns
    )
    if excess <= _HIDDEN_NS + _HIDDEN_SHARE * told:
        return ""
    return (
        f"its process reported {told / calls / 1e3:.1f} us a call, and the judge's clock saw at "
        f"least {excess / calls / 1e3:.1f} us more"
    )


def _told_apart(times: dict[str, list[float]]) -> str:
    """Why a candidate treats cold turns unlike hot ones; empty when it does not."""
    if not times.get("cold") or not times.get("hot"):
        return ""
    cold, hot = (statistics.median(times[mode]) for mode in ("cold", "hot"))
    if cold >= _COLD_SHARE * hot:
        return ""
    return f"{cold / 1e3:.1f} us with cold caches, {hot / 1e3:.1f} us with hot ones"


def _moved(workload: Workload, parts: Layout) -> int:
    if workload.bytes is not None:
        return workload.bytes
    return sum(part.nbytes for part in (*parts.inputs, *parts.outputs))


def _spec(workload: Workload, candidate: Candidate, device: str, parts: Layout) -> dict[str, Any]:
    """What a worker is told; nothing of the reference."""
    dtype = workload.tensors[0].dtype if workload.tensors else "float32"
    return {
        "device": device,
        "name": candidate.name,
        "kind": candidate.kind,
        "file": candidate.file,
        "kernel": candidate.kernel,
        "registry": candidate.registry,
        "inplace": list(workload.inplace),
        "inputs": [{"shape": each.shape, "dtype": each.dtype} for each in parts.inputs],
        "outputs": [{"shape": each.shape, "dtype": each.dtype} for each in parts.outputs],
        "arguments": [
            {"tensor": True} if isinstance(each, Tensor) else {"value": each}
            for each in workload.inputs
        ],
        "side": SIDE[device],
        "dtype": dtype if dtype in _PRODUCTS else "float32",
    }
