# SPDX-License-Identifier: Apache-2.0
"""A candidate's turns, and what they come to: the times that count, by rounds, and in what state."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.bench.engine import stats, throttle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.bench.engine.throttle import Conditions, Reading
    from kernforge.bench.engine.workload import Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One turn in one mode.

    Attributes:
        round: number of the round that it belongs to.
        calls: how many calls it had.
        times: nanoseconds a call: of each call, or of each row of calls.
        readings: what the GPU said before and after; none on a CPU.
    """

    round: int
    calls: int
    times: tuple[float, ...]
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What of a candidate's turns counts.

    Attributes:
        rounds: times of each round that counts.
        calls: calls of these.
        in_a_row: calls that a time is of, at most.
        discarded: calls that do not count.
        discarded_for: reasons, with the calls that each discarded.
        conditions: what the GPU said in all turns; None on a CPU.
    """

    rounds: dict[int, list[float]]
    calls: int
    in_a_row: int
    discarded: int
    discarded_for: dict[str, int]
    conditions: Conditions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of a candidate with a workload in one mode.

    Attributes:
        candidate: its name.
        kind: what it is.
        workload: the workload's name.
        mode: how it was called.
        kept: its times.
        checked: calls whose results the judge looked at.
        refused: why the times are no measurement; empty when they are.
        skipped: why there is no such mode of it; empty when there is.
        moved: bytes that the workload must move.
        flops: operations that it must do.
    """

    candidate: str
    kind: str
    workload: str
    mode: Mode
    kept: Kept
    checked: int
    refused: str
    skipped: str
    moved: int
    flops: int

    @property
    def times_ns(self) -> tuple[float, ...]:
        """Every time that counts, nanoseconds a call."""
        return tuple(time for times in self.kept.rounds.values() for time in times)


def keep(turns: Sequence[Timed]) -> Kept:
    """What of these turns counts: all but those in which the GPU was slowed down."""
    readings = [turn.readings for turn in turns]
    rounds: dict[int, list[float]] = {}
    lost: Counter[str] = Counter()
    for turn, why in zip(turns, throttle.whys(readings), strict=True):
        if why:
            lost[why] += turn.calls
        else:
            rounds.setdefault(turn.round, []).extend(turn.times)
    in_all = sum(turn.calls for turn in turns)
    return Kept(
        rounds=rounds,
        calls=in_all - lost.total(),
        in_a_row=max((-(-turn.calls // len(turn.times)) for turn in turns), default=1),
        discarded=lost.total(),
        discarded_for=dict(sorted(lost.items())),
        conditions=throttle.conditions(readings) if any(readings) else None,
    )


def merge(sessions: Sequence[Measured]) -> Measured:
    """What came of a candidate in several processes of its own, each of which is one round now."""
    first = sessions[0]
    every = [each.kept for each in sessions]
    lost: Counter[str] = Counter()
    for kept in every:
        lost.update(kept.discarded_for)
    known = [kept.conditions for kept in every if kept.conditions]
    return dataclasses.replace(
        first,
        kept=Kept(
            rounds={
                number: [time for times in kept.rounds.values() for time in times]
                for number, kept in enumerate(every)
                if kept.rounds
            },
            calls=sum(kept.calls for kept in every),
            in_a_row=max(kept.in_a_row for kept in every),
            discarded=lost.total(),
            discarded_for=dict(sorted(lost.items())),
            conditions=throttle.merged(known) if known else None,
        ),
        checked=sum(each.checked for each in sessions),
        refused=next((each.refused for each in sessions if each.refused), ""),
        skipped=next((each.skipped for each in sessions if each.skipped), ""),
    )


def sure(turns: Sequence[Timed], width: float) -> bool:
    """Whether the interval of what counts is at most ``width`` of the median wide."""
    return stats.narrow_enough(keep(turns).rounds, width)
