# SPDX-License-Identifier: Apache-2.0
"""Which of the waiting actions may start now, so that neither cores nor memory run out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernforge.builder.execute.cost import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An action that could start.

    Attributes:
        distance: seconds from its start to the end of the longest chain that waits for it.
        alone: whether nothing else may run meanwhile, because it was killed for its memory before.
        width: how many threads it can use.
    """

    key: str
    estimate: Estimate
    distance: float
    alone: bool = False
    width: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An action that has started.

    Attributes:
        elapsed: seconds since its start.
        current: bytes that it uses now.
        threads: how many it was given.
    """

    estimate: Estimate
    elapsed: float = 0.0
    current: int = 0
    alone: bool = False
    threads: int = 1


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
    waiting: Sequence[Waiting], running: Sequence[Running], capacity: Capacity
) -> tuple[Waiting, ...]:
    """Choose what starts now.

    The longest chain goes first. An action that does not fit into the memory keeps its turn: only
    what ends before the running ones do may pass it. With nothing running an action is chosen even
    if it does not fit, since waiting would not help it.
    """
    if any(action.alone for action in running):
        return ()
    free = _free(running, capacity)
    horizon = max((action.estimate.seconds - action.elapsed for action in running), default=0.0)
    taken = sum(action.threads for action in running)
    chosen: list[Waiting] = []
    blocked = False
    for action in sorted(waiting, key=lambda w: (w.alone, -w.distance, w.key)):
        busy = taken + len(chosen)
        if busy >= capacity.slots or (action.alone and busy):
            break
        fits = action.estimate.memory <= free and not (
            blocked and action.estimate.seconds > horizon
        )
        if fits or not busy:
            chosen.append(action)
            free -= action.estimate.memory
            horizon = horizon if blocked else max(horizon, action.estimate.seconds)
            if action.alone:
                break
        else:
            blocked = True
    return tuple(chosen)


def threads(chosen: Sequence[Waiting], running: Sequence[Running], slots: int) -> dict[str, int]:
    """How many threads each of those that start now gets, by key.

    One each; free ones are given in turn, the most urgent first, to those that can use more.
    """
    given = {action.key: 1 for action in chosen}
    spare = slots - sum(action.threads for action in running) - len(chosen)
    able = [action for action in chosen if action.width > 1 and not action.alone]
    while spare > 0 and able:
        for action in able[:spare]:
            given[action.key] += 1
            spare -= 1
        able = [action for action in able if action.width > given[action.key]]
    return given


def _free(running: Sequence[Running], capacity: Capacity) -> int:
    """Bytes that are free and that no running action will still take, as far as is known."""
    promised = sum(max(0, action.estimate.memory - action.current) for action in running)
    free = capacity.available - promised
    if capacity.limit is not None:
        free = min(free, capacity.limit - sum(max(a.estimate.memory, a.current) for a in running))
    return free
