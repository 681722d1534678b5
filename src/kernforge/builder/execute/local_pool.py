# SPDX-License-Identifier: Apache-2.0
"""Threads that run actions on this machine, within its cores and memory."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kernforge.builder.execute import schedule
from kernforge.builder.execute.schedule import Job
from kernforge.system import machine
from kernforge.system.process import kill_all, meter

T = TypeVar("T")
# Others on the machine may free memory without telling us.
_LOOK_AGAIN_S = 0.5
_BETWEEN_KILLS_S = 0.02
_GIVE_UP_S = 10.0


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
        self._pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self._running: dict[str, Job] = {}
        self._futures: list[concurrent.futures.Future[Any]] = []
        self._lock = threading.Lock()
        self.patience: float | None = None

    def choose(self, waiting: Sequence[Job]) -> tuple[Job, ...]:
        """Actions that may start now; see ``schedule.admit``."""
        with self._lock:
            running = list(self._running.values())
        taken = sum(job.threads for job in running)
        if not waiting or taken >= self._jobs:
            self.patience = None
            return ()
        usage = self.usage()
        for job in running:
            job.current = usage.get(job.action.key, 0)
        capacity = schedule.Capacity(
            slots=self._jobs, available=self._available(), limit=self._limit
        )
        chosen = schedule.admit(waiting, running, capacity, time.monotonic())
        # What the memory keeps waiting will want its slots.
        slots = self._jobs - (len(waiting) - len(chosen))
        for job, given in zip(chosen, schedule.threads(chosen, running, slots), strict=True):
            job.threads = given
        held_back = len(chosen) < len(waiting) and taken + len(chosen) < self._jobs
        self.patience = _LOOK_AGAIN_S if held_back else None
        return chosen

    def submit(self, job: Job, work: Callable[[Job], T]) -> concurrent.futures.Future[T]:
        """Start an action in a thread."""
        job.thread = 0
        with self._lock:
            self._running[job.action.key] = job

        def run() -> T:
            job.thread = threading.get_ident()
            try:
                return work(job)
            finally:
                with self._lock:
                    del self._running[job.action.key]

        future = self._pool.submit(run)
        self._futures.append(future)
        return future

    def usage(self) -> dict[str, int]:
        """Bytes that each running action uses now, by key."""
        seen = meter.by_thread()
        with self._lock:
            running = dict(self._running)
        return {key: seen[job.thread].current for key, job in running.items() if job.thread in seen}

    def close(self) -> None:
        """Let the threads go."""
        self._pool.shutdown()

    def kill(self) -> None:
        """Stop everything at once."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        deadline = time.monotonic() + _GIVE_UP_S
        # More than once: a thread may have been just about to start its program.
        kill_all()
        while any(not future.done() for future in self._futures):
            kill_all()
            if time.monotonic() > deadline:
                return
            time.sleep(_BETWEEN_KILLS_S)
