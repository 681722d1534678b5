# SPDX-License-Identifier: Apache-2.0
"""Which of the waiting actions may start now, so that neither cores nor memory run out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.build.execute.cost import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An action that could start.

    Attributes:
        key: which.
        estimate: what it is expected to need.
        distance: seconds from its start to the end of the longest chain that waits for it.
        alone: whether nothing may run beside it, because it was killed for its memory before.
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
        estimate: what it was expected to need.
        elapsed: seconds since its start.
        current: bytes that it uses now.
        alone: whether nothing may run beside it.
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
    waiting: Sequence[Waiting], running: Sequence[Running], room: Capacity
) -> tuple[Waiting, ...]:
    """Choose what starts now.

    The longest chain goes first. One that does not fit into the memory keeps its place: only what
    ends before the running ones do may pass it. With nothing running one is chosen even if it
    does not fit, since waiting would not help it.
    """
    if any(one.alone for one in running):
        return ()
    free = _free(running, room)
    horizon = max((one.estimate.seconds - one.elapsed for one in running), default=0.0)
    taken = sum(one.threads for one in running)
    chosen: list[Waiting] = []
    blocked = False
    for one in sorted(waiting, key=lambda w: (w.alone, -w.distance, w.key)):
        busy = taken + len(chosen)
        if busy >= room.slots or (one.alone and busy):
            break
        fits = one.estimate.memory <= free and not (blocked and one.estimate.seconds > horizon)
        if fits or not busy:
            chosen.append(one)
            free -= one.estimate.memory
            horizon = horizon if blocked else max(horizon, one.estimate.seconds)
            if one.alone:
                break
        else:
            blocked = True
    return tuple(chosen)


def threads(chosen: Sequence[Waiting], running: Sequence[Running], slots: int) -> dict[str, int]:
    """How many threads each of those that start now gets, by key.

    One each; what nobody takes goes around, the most urgent first, to those that can use more.
    """
    given = {one.key: 1 for one in chosen}
    spare = slots - sum(one.threads for one in running) - len(chosen)
    able = [one for one in chosen if one.width > 1 and not one.alone]
    while spare > 0 and able:
        for one in able[:spare]:
            given[one.key] += 1
            spare -= 1
        able = [one for one in able if one.width > given[one.key]]
    return given


def _free(running: Sequence[Running], room: Capacity) -> int:
    """Bytes that nobody uses and that no running action will still take, as far as is known."""
    promised = sum(max(0, one.estimate.memory - one.current) for one in running)
    free = room.available - promised
    if room.limit is not None:
        free = min(free, room.limit - sum(max(o.estimate.memory, o.current) for o in running))
    return free
