# SPDX-License-Identifier: Apache-2.0
"""The candidates' processes as the judge sees them: requests, replies, and the times so far."""

from __future__ import annotations

import os
import statistics
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernforge.bench.engine import doubts, messages, workload
from kernforge.bench.engine.cuda_driver import Driver
from kernforge.bench.engine.exchange import DeviceBuffer, Exchange, HostBuffer, Scratch
from kernforge.bench.engine.messages import Acknowledged, MessageError, Refused, Times, WorkerStart
from kernforge.bench.engine.workload import COPY, NOTHING, PRODUCT, SIDE, Candidate, Settings
from kernforge.system.process import Command, PipedProcess

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.bench.engine.messages import Reply, Request
    from kernforge.bench.engine.samples import TimedTurn
    from kernforge.bench.engine.workload import Layout, Mode

_MANY_CPUS = 4
_LONGEST = 4000  # Characters of a reason that a candidate gives.
START_S = 600.0  # torch.compile's tuning may take minutes.


@dataclass(slots=True, kw_only=True)
class CandidateProcess:
    """A candidate's process, and what the judge knows of it.

    Attributes:
        scratch: the judge's memory for copies of it.
        exchange: the memory as tensors of the workload.
        refused: why the candidate is refused; empty when it is not.
        skipped: modes that the candidate does not have, with the reason.
        untimed: of each turn without a flush, nanoseconds by the judge's clock, nanoseconds that the
            process reported, and the number of calls.
        prepared: of the same turns, nanoseconds that the process worked until its inputs were
            prepared, nanoseconds that it reported, and the number of calls.
    """

    candidate: Candidate
    pipes: PipedProcess
    shared: HostBuffer | DeviceBuffer
    scratch: Scratch
    exchange: Exchange = field(init=False)
    dead: bool = False
    call_s: float = 0.0
    refused: str = ""
    checked: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    turns: dict[str, list[TimedTurn]] = field(default_factory=dict)
    untimed: list[tuple[float, float, int]] = field(default_factory=list)
    prepared: list[tuple[float, float, int]] = field(default_factory=list)

    def begin(self, parts: Layout) -> None:
        """Forget the workload before; a candidate whose process is dead stays refused."""
        self.exchange = Exchange(self.shared, parts, self.scratch)
        self.call_s, self.checked = 0.0, 0
        self.skipped, self.turns = {}, {}
        self.untimed, self.prepared = [], []
        if not self.dead:
            self.refused = ""

    def times(self) -> dict[str, list[float]]:
        """Every time that the process reported, by modes."""
        return {
            mode: [time for turn in turns for time in turn.times]
            for mode, turns in self.turns.items()
        }

    def keep(self, mode: Mode, turn: TimedTurn, judged: tuple[int, int] | None) -> None:
        """Keep a turn.

        Args:
            judged: nanoseconds that the process worked until its inputs were prepared, and those of
                the judge's clock from then until the calls were done; None in a mode for which the
                judge's clock is too coarse.
        """
        self.turns.setdefault(mode, []).append(turn)
        if judged:
            reported = statistics.fmean(turn.times) * turn.calls
            self.untimed.append((judged[1], reported, turn.calls))
            if not self.candidate.entry:  # A class is set up there, by its own code.
                self.prepared.append((judged[0], reported, turn.calls))

    def plausible(self, reply: Times, mode: Mode, calls: int) -> bool:
        """Whether a reply has the times of all calls; the candidate is refused when it has not."""
        if len(reply.times) == workload.samples_of(mode, calls):
            return True
        self.refused = f"its process did not report the times of {calls} calls"
        return False

    def doubt(self, nothing: CandidateProcess) -> str:
        """Why the times cannot be believed; empty when they can."""
        return (
            doubts.hidden_time(self.untimed, nothing.untimed)
            or doubts.computed_ahead(self.prepared, nothing.prepared)
            or doubts.distinguished(self.times())
            or doubts.uneven([turn.times for turn in self.turns.get("hot", [])])
        )

    def ask(
        self, seconds: float, request: Request, kinds: tuple[type[Reply], ...] = (Acknowledged,)
    ) -> Reply | None:
        """The reply to a request; None when there is none, and the candidate is refused."""
        self.pipes.send(messages.encode(request))
        return self.hear(seconds, kinds)

    def hear(
        self, seconds: float, kinds: tuple[type[Reply], ...] = (Acknowledged,)
    ) -> Reply | None:
        """The next reply, as ``ask`` returns it."""
        try:
            reply = messages.receive(self.pipes, seconds, (*kinds, Refused))
        except MessageError as error:
            self.dead, self.refused = True, str(error)
            return None
        if isinstance(reply, Refused):
            self.refused = reply.why[:_LONGEST] or "its process gives no reason"
        return None if self.refused else reply


class CandidateField:
    """The processes of all candidates, and the memory that each shares with the judge."""

    def __init__(self, candidates: Sequence[Candidate], settings: Settings, size: int) -> None:
        self._candidates, self._settings = candidates, settings
        self._size = size
        self._buffers: list[HostBuffer | DeviceBuffer] = []
        self._scratch = Scratch()
        self.processes: list[CandidateProcess] = []

    def start(self, *, counts: bool) -> None:
        """Start all processes, and stop each; with ``counts`` a matrix product is measured too."""
        for candidate in (*self._candidates, NOTHING, COPY, *((PRODUCT,) if counts else ())):
            shared, device = self._buffer(), self._settings.device
            start = WorkerStart(
                device=device,
                candidate=candidate,
                buffer=shared.address,
                side=SIDE[device],
                cpu=_cpu() if device == "cuda" else None,
            )
            argv = (sys.executable, "-m", candidate.worker, messages.encode(start))
            process = CandidateProcess(
                candidate=candidate,
                pipes=PipedProcess(Command(argv=argv)),
                shared=shared,
                scratch=self._scratch,
            )
            self.processes.append(process)
        for process in self.processes:
            process.hear(START_S)
            process.dead = bool(process.refused)
            process.pipes.pause()

    def _buffer(self) -> HostBuffer | DeviceBuffer:
        """On a CPU a buffer for each process; on a GPU one for all, where each clears what it leaves."""
        if self._settings.device == "cpu":
            self._buffers.append(HostBuffer(self._size))
        elif not self._buffers:
            self._buffers.append(DeviceBuffer(Driver(), self._size))
        return self._buffers[-1]

    def close(self) -> None:
        """End every process."""
        for process in self.processes:
            process.pipes.kill()
        for buffer in self._buffers:
            buffer.close()


def _cpu() -> int | None:
    """The processor on which all candidates make timed calls; None where there are few.

    Cores differ, and one that another machine shares differs from minute to minute: candidates are
    compared on the same one. The first is left to interrupts.
    """
    known = os.sched_getaffinity(0)
    return max(known) if len(known) >= _MANY_CPUS else None
