# SPDX-License-Identifier: Apache-2.0
"""Threads that run actions on this machine, within its cores and memory."""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from kernforge.builder.execute import cost, schedule
from kernforge.builder.execute.cost import Estimate
from kernforge.builder.plan.graph import Action
from kernforge.system import machine
from kernforge.system.process import kill_all, meter

T = TypeVar("T")
# Others on the machine may free memory without telling us.
_LOOK_AGAIN_S = 0.5
_BETWEEN_KILLS_S = 0.02
_GIVE_UP_S = 10.0


@dataclass(slots=True, kw_only=True)
class _Working:
    estimate: Estimate
    started: float
    alone: bool
    threads: int
    thread: int = 0


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
        self._working: dict[str, _Working] = {}
        self._given: dict[str, int] = {}
        self._futures: list[concurrent.futures.Future[Any]] = []
        self._lock = threading.Lock()
        self.patience: float | None = None

    def choose(
        self,
        waiting: Sequence[Action],
        expected: Mapping[str, Estimate],
        distance: Mapping[str, float],
        alone: Collection[str],
    ) -> tuple[Action, ...]:
        """Actions that may start now; see ``schedule.admit``."""
        running = self._running()
        taken = sum(action.threads for action in running)
        if not waiting or taken >= self._jobs:
            self.patience = None
            return ()
        jobs = [
            schedule.Waiting(
                key=a.key,
                estimate=expected[a.key],
                distance=distance[a.key],
                alone=a.key in alone,
                width=cost.width(a, self._jobs),
            )
            for a in waiting
        ]
        capacity = schedule.Capacity(
            slots=self._jobs, available=self._available(), limit=self._limit
        )
        admitted = schedule.admit(jobs, running, capacity)
        chosen = {action.key for action in admitted}
        held_back = len(chosen) < len(waiting) and taken + len(chosen) < self._jobs
        # What the memory keeps waiting will want its slots.
        slots = self._jobs - (len(waiting) - len(chosen))
        self._given |= schedule.threads(admitted, running, slots)
        self.patience = _LOOK_AGAIN_S if held_back else None
        order = {job.key: -job.distance for job in jobs}
        picked = [action for action in waiting if action.key in chosen]
        return tuple(sorted(picked, key=lambda action: order[action.key]))

    def submit(
        self, action: Action, expected: Estimate, *, alone: bool, work: Callable[[Action, int], T]
    ) -> concurrent.futures.Future[T]:
        """Start an action in a thread."""
        threads = self._given.pop(action.key, 1)
        working = _Working(
            estimate=expected, started=time.monotonic(), alone=alone, threads=threads
        )
        with self._lock:
            self._working[action.key] = working

        def run() -> T:
            working.thread = threading.get_ident()
            try:
                return work(action, threads)
            finally:
                with self._lock:
                    del self._working[action.key]

        future = self._pool.submit(run)
        self._futures.append(future)
        return future

    def usage(self) -> dict[str, int]:
        """Bytes that each running action uses now, by key."""
        seen = meter.by_thread()
        with self._lock:
            working = dict(self._working)
        return {key: seen[w.thread].current for key, w in working.items() if w.thread in seen}

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

    def _running(self) -> list[schedule.Running]:
        now, usage = time.monotonic(), self.usage()
        with self._lock:
            working = dict(self._working)
        return [
            schedule.Running(
                estimate=w.estimate,
                elapsed=now - w.started,
                current=usage.get(key, 0),
                alone=w.alone,
                threads=w.threads,
            )
            for key, w in working.items()
        ]
