# SPDX-License-Identifier: Apache-2.0
"""Threads that run actions on this machine, within its cores and memory.

What an action will cost is learned from the last runs of the same action, and guessed before: of
one with the same arguments and inputs by name, whatever the files hold, so that an edited kernel is
expected to cost what it did before the edit. Which of the waiting actions may start now is decided
by ``admit``, a pure function.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from kernforge.builder.action import Done
from kernforge.builder.graph import Action
from kernforge.builder.slim_headers import TORCH
from kernforge.system import digest, files, machine
from kernforge.system.process import kill_all, meter

_MIB = 2**20
# Part of an op namespace that changes with every edit.
_SOURCES_ID = re.compile(r"_[0-9a-f]{10}\b")
# MiB, those of each thread, seconds, those of each architecture: of heavy kernels of their kind,
# with torch's headers or without.
_FIRST = {
    ("cuda", True): (2500, 1500, 40, 20),
    ("cuda", False): (300, 500, 2, 2),
    ("c++", True): (1200, 0, 15, 0),
    ("c++", False): (500, 0, 3, 0),
}
_LIGHT = (300, 0, 0.5, 0)
# A measured peak is forgotten slowly: a lucky run must not exhaust the machine.
_FORGET = 0.8
# Peak of an action that ended before its memory was sampled.
_LEAST = 32 * _MIB
# Other processes may free memory.
_LOOK_AGAIN_S = 0.5
_BETWEEN_KILLS_S = 0.02
_GIVE_UP_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Expected peak memory in bytes, and seconds."""

    memory: int
    seconds: float


class Measures:
    """Estimates of actions."""

    def __init__(self, root: Path, *, jobs: int) -> None:
        self._directory, self._jobs = root / "measured", jobs

    def expect(self, action: Action) -> Estimate:
        """Estimate an action from its last runs, or guess."""
        return self._known(action) or guess(action, jobs=self._jobs)

    def learn(self, action: Action, *, peak_bytes: int, wall_s: float) -> None:
        """Update the estimate of an action after a run."""
        new = learned(self._known(action), peak_bytes=peak_bytes, wall_s=wall_s)
        files.write_atomic(self._path(action), json.dumps(asdict(new)), durable=False)

    def _known(self, action: Action) -> Estimate | None:
        try:
            data = json.loads(self._path(action).read_bytes())
            return Estimate(memory=int(data["memory"]), seconds=float(data["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None  # never ran, or was written by another version

    def _path(self, action: Action) -> Path:
        name = identity(action, jobs=self._jobs)
        return self._directory / name[:2] / f"{name}.json"


def identity(action: Action, *, jobs: int) -> str:
    """Name of an action across edits; in its memory nvcc has ``jobs`` architectures at once."""
    return digest.key(
        "measured",
        argv=[_SOURCES_ID.sub("", part) for part in action.argv],
        inputs=sorted(_SOURCES_ID.sub("", file.path) for file in action.inputs),
        width=width(action, jobs),
    )


def guess(action: Action, *, jobs: int) -> Estimate:
    """First estimate, by kind: too much memory costs some waiting, too little the build."""
    language = "cuda" if action.kind == "device link" else action.kind
    torch = any(TORCH.search(name) for name in action.trees) and not action.slim
    memory, per_thread, seconds, per_arch = _FIRST.get((language, torch), _LIGHT)
    return Estimate(
        memory=(memory + per_thread * width(action, jobs)) * _MIB,
        seconds=seconds + per_arch * max(1, len(action.archs)),
    )


def learned(old: Estimate | None, *, peak_bytes: int, wall_s: float) -> Estimate:
    """Update an estimate by a run."""
    peak = max(peak_bytes, _LEAST)
    if old is None:
        return Estimate(memory=peak, seconds=wall_s)
    return Estimate(memory=max(peak, int(old.memory * _FORGET)), seconds=(old.seconds + wall_s) / 2)


def critical_paths(actions: Sequence[Action], expected: Mapping[str, Estimate]) -> dict[str, float]:
    """Seconds from the start of each action to the end of the longest chain that waits for it.

    Args:
        actions: in an order in which each comes after those it needs.
        expected: of those that must run, by key.
    """
    after = {action.key: 0.0 for action in actions}
    path_s = {}
    for action in reversed(actions):
        own = expected[action.key].seconds if action.key in expected else 0.0
        path_s[action.key] = after[action.key] + own
        for key in action.needs:
            after[key] = max(after[key], path_s[action.key])
    return path_s


def width(action: Action, jobs: int) -> int:
    """How many threads an action can use: nvcc, one for each architecture."""
    return max(1, min(jobs, len(action.archs)))


# -- which start now ----------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Job:
    """An action that waits for its turn or runs.

    Attributes:
        critical_path_s: seconds from its start to the end of the longest chain that waits for it.
        alone: whether nothing else may run meanwhile, because it was killed for its memory before.
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


def admit(
    waiting: Sequence[Job], running: Sequence[Job], *, slots: int, available: int
) -> tuple[Job, ...]:
    """Choose what starts now, the most urgent first.

    The longest chain goes first, and nothing passes an action that waits for memory. With nothing
    running an action is chosen even if it does not fit, since waiting would not help it.

    Args:
        slots: how many threads all actions together may have.
        available: bytes that the machine has left now.
    """
    if any(job.alone for job in running):
        return ()
    # Less what running actions will still take, as far as is known.
    free = available - sum(max(0, job.estimate.memory - job.current) for job in running)
    taken = sum(job.threads for job in running)
    chosen: list[Job] = []
    for job in sorted(waiting, key=lambda w: (w.alone, -w.critical_path_s, w.action.key)):
        busy = taken + len(chosen)
        if busy and (busy >= slots or job.alone or job.estimate.memory > free):
            break
        chosen.append(job)
        free -= job.estimate.memory
        if job.alone:
            break
    return tuple(chosen)


def threads(chosen: Sequence[Job], running: Sequence[Job], slots: int) -> list[int]:
    """Distribute threads to the actions that start now.

    One each; free ones are given in turn, the most urgent first, to those that can use more.
    """
    given = [1 for _ in chosen]
    spare = slots - sum(job.threads for job in running) - len(chosen)
    widths = [1 if job.alone else width(job.action, slots) for job in chosen]
    while spare > 0 and (able := [n for n, width in enumerate(widths) if width > given[n]]):
        for number in able[:spare]:
            given[number] += 1
            spare -= 1
    return given


class LocalPool:
    """Threads of this process."""

    def __init__(
        self,
        *,
        jobs: int,
        available: Callable[[], int] = machine.available_memory,
    ) -> None:
        self._jobs, self._available = jobs, available
        self._pool = ThreadPoolExecutor(jobs)
        self._running: dict[Future[Done], Job] = {}
        self.poll_interval_s: float | None = None

    def choose(self, waiting: Sequence[Job]) -> tuple[Job, ...]:
        """Actions that may start now; see ``admit``."""
        self._running = {each: job for each, job in self._running.items() if not each.done()}
        running = list(self._running.values())
        taken = sum(job.threads for job in running)
        if not waiting or taken >= self._jobs:
            self.poll_interval_s = None
            return ()
        seen = meter.by_thread()
        for job in running:
            job.current = seen[job.thread].current if job.thread in seen else 0
        available = self._available()
        chosen = admit(waiting, running, slots=self._jobs, available=available)
        # Actions that wait for memory will want their slots.
        slots = self._jobs - (len(waiting) - len(chosen))
        for job, given in zip(chosen, threads(chosen, running, slots), strict=True):
            job.threads = given
        held_back = len(chosen) < len(waiting) and taken + len(chosen) < self._jobs
        self.poll_interval_s = _LOOK_AGAIN_S if held_back else None
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

    def close(self) -> None:
        """Stop the threads when they are idle."""
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
