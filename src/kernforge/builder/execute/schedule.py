# SPDX-License-Identifier: Apache-2.0
"""Which of the waiting actions may start now, so that neither cores nor memory run out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernforge.builder.execute import cost
from kernforge.builder.execute.cost import Estimate
from kernforge.builder.plan.graph import Action


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
