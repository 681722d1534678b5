# SPDX-License-Identifier: Apache-2.0
"""The processes that compete, as the judge sees them: what they are told, and what they have shown."""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import doubts, workload
from kernforge.bench.engine.cuda_driver import Driver
from kernforge.bench.engine.exchange import DeviceBuffer, Exchange, HostBuffer, Scratch
from kernforge.bench.engine.workload import COPY, NOTHING, PRODUCT, SIDE, Candidate, Settings
from kernforge.system.process import Command, Partner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.bench.engine.samples import Timed
    from kernforge.bench.engine.workload import Layout, Mode

_MANY_CPUS = 4
START_S = 600.0  # torch.compile's tuning may take minutes.


@dataclass(slots=True, kw_only=True)
class Runner:
    """A candidate's process and what it has shown so far."""

    candidate: Candidate
    partner: Partner
    shared: HostBuffer | DeviceBuffer
    scratch: Scratch
    exchange: Exchange = field(init=False)
    dead: bool = False
    call_s: float = 0.0
    refused: str = ""
    checked: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    turns: dict[str, list[Timed]] = field(default_factory=dict)
    untimed: list[tuple[float, float, int]] = field(default_factory=list)
    prepared: list[tuple[float, float, int]] = field(default_factory=list)
    unevenness: list[float] = field(default_factory=list)

    def begin(self, parts: Layout) -> None:
        """Forget the workload before; who has no process any more stays refused."""
        self.exchange = Exchange(self.shared, parts, self.scratch)
        self.call_s, self.checked = 0.0, 0
        self.skipped, self.turns = {}, {}
        self.untimed, self.prepared, self.unevenness = [], [], []
        if not self.dead:
            self.refused = ""

    def times(self) -> dict[str, list[float]]:
        """Every time that it reported, by modes."""
        return {
            mode: [time for turn in turns for time in turn.times]
            for mode, turns in self.turns.items()
        }

    def keep(self, mode: Mode, turn: Timed, judged: tuple[int, int] | None) -> None:
        """Keep a turn.

        Args:
            mode: how it was called.
            turn: what came of it.
            judged: nanoseconds that the process worked until the inputs lay ready, and those of the
                judge's clock from then until the calls were done; None where its clock is too coarse for the mode.
        """
        self.turns.setdefault(mode, []).append(turn)
        uneven = doubts.unevenness(turn.times)
        if mode == "hot" and uneven is not None:
            self.unevenness.append(uneven)
        if judged:
            told = statistics.fmean(turn.times) * turn.calls
            self.untimed.append((judged[1], told, turn.calls))
            if not self.candidate.entry:  # A class is set up there, by its own code.
                self.prepared.append((judged[0], told, turn.calls))

    def plausible(self, answer: dict[str, Any], mode: Mode, calls: int) -> bool:
        """Whether an answer has all its times; it is refused when it has not."""
        times = answer.get("times")
        if (
            isinstance(times, list)
            and len(times) == workload.samples_of(mode, calls)
            and all(isinstance(each, int | float) and each >= 0 for each in times)
        ):
            return True
        self.refused = f"its process reported no times of {calls} calls"
        return False

    def doubt(self, nothing: Runner) -> str:
        """Why its times cannot be believed; empty when they can.

        Args:
            nothing: the process whose calls do nothing.
        """
        return (
            doubts.hidden_time(self.untimed, nothing.untimed)
            or doubts.computed_ahead(self.prepared, nothing.prepared)
            or doubts.told_apart(self.times())
            or doubts.uneven(self.unevenness)
        )

    def ask(self, seconds: float, **wanted: Any) -> dict[str, Any] | None:
        """Its answer; None, and refused, when it gives none."""
        self.partner.send(json.dumps(wanted))
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """The answer to what was said last; None, and refused, when there is none."""
        line = self.partner.receive(seconds)
        answer = _document(line)
        if answer is None:
            self.dead = True
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


class Field:
    """The processes of all candidates, and the memory that each shares with the judge."""

    def __init__(self, candidates: Sequence[Candidate], settings: Settings, size: int) -> None:
        self._candidates, self._settings = candidates, settings
        self._size = size
        self._buffers: list[HostBuffer | DeviceBuffer] = []
        self._scratch = Scratch()
        self.runners: list[Runner] = []

    def start(self, *, counts: bool) -> None:
        """Start all processes together, wait for each, and stop it until it is on turn.

        Args:
            counts: whether operations count, so that a matrix product is measured too.
        """
        for candidate in (*self._candidates, NOTHING, COPY, *((PRODUCT,) if counts else ())):
            shared = self._buffer()
            spec = _spec(candidate, self._settings.device) | {"exchange": shared.told}
            module = "bench_hubworker" if candidate.entry else "bench_worker"
            argv = (sys.executable, "-m", f"kernforge.{module}", json.dumps(spec))
            runner = Runner(
                candidate=candidate,
                partner=Partner(Command(argv=argv)),
                shared=shared,
                scratch=self._scratch,
            )
            self.runners.append(runner)
        for runner in self.runners:
            runner.hear(START_S)
            runner.dead = bool(runner.refused)
            runner.partner.pause()

    def _buffer(self) -> HostBuffer | DeviceBuffer:
        """One of its own in the host's memory; one for all on a GPU, where each clears what it leaves."""
        if self._settings.device == "cpu":
            self._buffers.append(HostBuffer(self._size))
        elif not self._buffers:
            self._buffers.append(DeviceBuffer(Driver(), self._size))
        return self._buffers[-1]

    def close(self) -> None:
        """End every process."""
        for runner in self.runners:
            runner.partner.kill()
        for buffer in self._buffers:
            buffer.close()


def _cpu() -> int | None:
    """The processor on which everyone makes timed calls; None where there are few.

    Cores differ, and one that another machine shares differs from minute to minute: candidates are
    compared on the same one. The first is left to interrupts.
    """
    known = os.sched_getaffinity(0)
    return max(known) if len(known) >= _MANY_CPUS else None


def _spec(candidate: Candidate, device: str) -> dict[str, Any]:
    """What a worker is told at its start."""
    return {
        "device": device,
        "name": candidate.name,
        "kind": candidate.kind,
        "file": candidate.file,
        "kernel": candidate.kernel,
        "registry": candidate.registry,
        "trust": candidate.trust,
        "entry": candidate.entry,
        "repo": candidate.repo,
        "after": candidate.after,
        "side": SIDE[device],
        "cpu": _cpu() if device == "cuda" else None,
    }
