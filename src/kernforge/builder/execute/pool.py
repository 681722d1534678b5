# SPDX-License-Identifier: Apache-2.0
"""Threads that run actions on this machine, within its cores and memory.

Which of the waiting actions may start now is decided by ``admit``, a pure function.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from kernforge.builder.execute import cost
from kernforge.builder.execute.action import Done
from kernforge.builder.execute.cost import Estimate
from kernforge.builder.plan.graph import Action
from kernforge.system import machine
from kernforge.system.process import kill_all, meter

# Others on the machine may free memory without telling us.
_LOOK_AGAIN_S = 0.5
_BETWEEN_KILLS_S = 0.02
_GIVE_UP_S = 10.0


@dataclass(slots=True, kw_only=True)
class Job:
    """An action that waits for its turn or runs.

    Attributes:
        critical_path_s: seconds from its start to the end of the longest chain that waits for it.
        alone: whether nothing else may run meanwhile, because it was killed for its memory before.
        threads: how many it was given.
        started: when, by the monotonic clock.
        thread: which thread of this process runs it; 0 for none.
        current: bytes that it uses now.
    """

    action: Action
    estimate: Estimate
    critical_path_s: float
    alone: bool = False
    threads: int = 1
    started: float = 0.0
    thread: int = 0
    current: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What there is to run in.

    Attributes:
        slots: how many threads all actions together may have.
        available: bytes that the machine has left now.
        limit: bytes that all actions together may take; None leaves it to ``available``.
    """

    slots: int
    available: int
    limit: int | None = None


def admit(
    waiting: Sequence[Job], running: Sequence[Job], capacity: Capacity, now: float
) -> tuple[Job, ...]:
    """Choose what starts now, the most urgent first.

    The longest chain goes first. An action that does not fit into the memory keeps its turn: only
    what ends before the running ones do may pass it. With nothing running an action is chosen even
    if it does not fit, since waiting would not help it.
    """
    if any(job.alone for job in running):
        return ()
    free = _free(running, capacity)
    horizon = max((job.started + job.estimate.seconds - now for job in running), default=0.0)
    taken = sum(job.threads for job in running)
    chosen: list[Job] = []
    blocked = False
    for job in sorted(waiting, key=lambda w: (w.alone, -w.critical_path_s, w.action.key)):
        busy = taken + len(chosen)
        if busy >= capacity.slots or (job.alone and busy):
            break
        fits = job.estimate.memory <= free and not (blocked and job.estimate.seconds > horizon)
        if fits or not busy:
            chosen.append(job)
            free -= job.estimate.memory
            horizon = horizon if blocked else max(horizon, job.estimate.seconds)
            if job.alone:
                break
        else:
            blocked = True
    return tuple(chosen)


def threads(chosen: Sequence[Job], running: Sequence[Job], slots: int) -> list[int]:
    """How many threads each of those that start now gets.

    One each; free ones are given in turn, the most urgent first, to those that can use more.
    """
    given = [1 for _ in chosen]
    spare = slots - sum(job.threads for job in running) - len(chosen)
    widths = [1 if job.alone else cost.width(job.action, slots) for job in chosen]
    while spare > 0 and (able := [n for n, width in enumerate(widths) if width > given[n]]):
        for number in able[:spare]:
            given[number] += 1
            spare -= 1
    return given


def _free(running: Sequence[Job], capacity: Capacity) -> int:
    """Bytes that are free and that no running action will still take, as far as is known."""
    promised = sum(max(0, job.estimate.memory - job.current) for job in running)
    free = capacity.available - promised
    if capacity.limit is not None:
        used = sum(max(job.estimate.memory, job.current) for job in running)
        free = min(free, capacity.limit - used)
    return free


class LocalPool:
    """Threads of this process.

    Args:
        jobs: how many threads all actions together may have; most actions have one.
        limit: bytes that all of them together may take; None for what the machine has.
        available: returns how many bytes are left now.
    """

    def __init__(
        self,
        *,
        jobs: int,
        limit: int | None = None,
        available: Callable[[], int] = machine.available_memory,
    ) -> None:
        self._jobs, self._limit, self._available = jobs, limit, available
        self._pool = ThreadPoolExecutor(jobs)
        self._running: dict[Future[Done], Job] = {}
        self.patience: float | None = None

    def choose(self, waiting: Sequence[Job]) -> tuple[Job, ...]:
        """Actions that may start now; see ``admit``."""
        self._running = {each: job for each, job in self._running.items() if not each.done()}
        running = list(self._running.values())
        taken = sum(job.threads for job in running)
        if not waiting or taken >= self._jobs:
            self.patience = None
            return ()
        usage = self.usage()
        for job in running:
            job.current = usage.get(job.action.key, 0)
        capacity = Capacity(slots=self._jobs, available=self._available(), limit=self._limit)
        chosen = admit(waiting, running, capacity, time.monotonic())
        # What the memory keeps waiting will want its slots.
        slots = self._jobs - (len(waiting) - len(chosen))
        for job, given in zip(chosen, threads(chosen, running, slots), strict=True):
            job.threads = given
        held_back = len(chosen) < len(waiting) and taken + len(chosen) < self._jobs
        self.patience = _LOOK_AGAIN_S if held_back else None
        return chosen

    def submit(self, job: Job, work: Callable[[Job], Done]) -> Future[Done]:
        """Start an action in a thread."""
        job.thread = 0

        def run() -> Done:
            job.thread = threading.get_ident()
            return work(job)

        future = self._pool.submit(run)
        self._running[future] = job
        return future

    def usage(self) -> dict[str, int]:
        """Bytes that each running action uses now, by key."""
        seen, running = meter.by_thread(), list(self._running.items())
        at_work = [job for future, job in running if not future.done() and job.thread in seen]
        return {job.action.key: seen[job.thread].current for job in at_work}

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown()

    def kill(self) -> None:
        """Stop everything at once."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _GIVE_UP_S
        # More than once: a thread may have been just about to start its program.
        kill_all()
        while any(not future.done() for future in self._running):
            kill_all()
            if time.monotonic() > deadline:
                return
            time.sleep(_BETWEEN_KILLS_S)
