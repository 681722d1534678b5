# SPDX-License-Identifier: Apache-2.0
"""Turns of a candidate: the times that count, by rounds, and what the GPU reported meanwhile.

The reasons for lower clocks are ``nvmlClocksEventReasons`` of NVML (nvml.h; "throttle reasons"
before driver 535). A GPU at its power limit is as fast as it can be for long, so that limit is
recorded and discards nothing; heat, a power brake and a fault of the hardware slow it down for a
while, and do.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.bench.engine.workload import Mode

REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x100: "display clock",
}
DISCARDING = frozenset(REASONS[bit] for bit in (0x8, 0x20, 0x40, 0x80))
LOW_CLOCK = "low clock"
_LEAST_SHARE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a GPU reported at one moment; None: it did not.

    Attributes:
        sm_mhz: clock of the multiprocessors, MHz.
    """

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a GPU reported during a candidate's turns: least and most, None where it did not.

    Attributes:
        clocks_mhz: of the multiprocessors.
        reasons: names of what held clocks back, with the number of turns that saw it; None where
            the GPU does not report them.
    """

    clocks_mhz: tuple[float, float] | None
    memory_mhz: tuple[float, float] | None
    temperature_c: tuple[float, float] | None
    power_w: tuple[float, float] | None
    reasons: dict[str, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedTurn:
    """One turn in one mode.

    Attributes:
        times: nanoseconds a call: of each call, or of each row of calls.
        readings: what the GPU reported before and after; none on a CPU.
    """

    round: int
    calls: int
    times: tuple[float, ...]
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTurns:
    """The part of a candidate's turns that counts.

    Attributes:
        rounds: times of each round that counts.
        in_a_row: largest number of calls that one time is of.
        discarded_for: number of calls that do not count, by reason.
        conditions: what the GPU reported in all turns; None on a CPU.
    """

    rounds: dict[int, list[float]]
    calls: int
    in_a_row: int
    discarded: int
    discarded_for: dict[str, int]
    conditions: Conditions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """A candidate with a workload in one mode.

    Attributes:
        refused: why the candidate is refused; empty when it is not.
        skipped: why the candidate has no such mode; empty when it has.
        moved: bytes that the workload must move.
    """

    candidate: str
    kind: str
    workload: str
    mode: Mode
    kept: KeptTurns
    checked: int
    refused: str
    skipped: str
    moved: int
    flops: int

    @property
    def times_ns(self) -> tuple[float, ...]:
        """Every time that counts, nanoseconds a call."""
        return tuple(time for times in self.kept.rounds.values() for time in times)


def keep(turns: Sequence[TimedTurn]) -> KeptTurns:
    """The turns that count: all but those in which the GPU was slowed down."""
    readings = [turn.readings for turn in turns]
    rounds: dict[int, list[float]] = {}
    lost: Counter[str] = Counter()
    for turn, why in zip(turns, discard_reasons(readings), strict=True):
        if why:
            lost[why] += turn.calls
        else:
            rounds.setdefault(turn.round, []).extend(turn.times)
    in_all = sum(turn.calls for turn in turns)
    return KeptTurns(
        rounds=rounds,
        calls=in_all - lost.total(),
        in_a_row=max((-(-turn.calls // len(turn.times)) for turn in turns), default=1),
        discarded=lost.total(),
        discarded_for=dict(sorted(lost.items())),
        conditions=conditions_of(readings) if any(readings) else None,
    )


def merge(sessions: Sequence[Measurement]) -> Measurement:
    """The measurements of a candidate in several processes as one, in which a process is a round."""
    first = sessions[0]
    every = [each.kept for each in sessions]
    lost: Counter[str] = Counter()
    for kept in every:
        lost.update(kept.discarded_for)
    known = [kept.conditions for kept in every if kept.conditions]
    return dataclasses.replace(
        first,
        kept=KeptTurns(
            rounds={
                number: [time for times in kept.rounds.values() for time in times]
                for number, kept in enumerate(every)
                if kept.rounds
            },
            calls=sum(kept.calls for kept in every),
            in_a_row=max(kept.in_a_row for kept in every),
            discarded=lost.total(),
            discarded_for=dict(sorted(lost.items())),
            conditions=merge_conditions(known) if known else None,
        ),
        checked=sum(each.checked for each in sessions),
        refused=next((each.refused for each in sessions if each.refused), ""),
        skipped=next((each.skipped for each in sessions if each.skipped), ""),
    )


def reason_names(bits: int) -> frozenset[str]:
    """Names of the reasons whose bits are set; an unknown bit keeps its number."""
    known = {name for bit, name in REASONS.items() if bits & bit}
    rest = bits & ~sum(REASONS)
    return frozenset(known | ({f"reason {rest:#x}"} if rest else set()))


def discard_reasons(turns: Sequence[Sequence[Reading]]) -> list[str]:
    """For each turn why its times do not count; empty where they do.

    Args:
        turns: the readings of each turn of one candidate. A turn is at a low clock below 95 % of
            the median over all turns.
    """
    clocks = [each.sm_mhz for turn in turns for each in turn if each.sm_mhz is not None]
    limit = _LEAST_SHARE * statistics.median(clocks) if clocks else 0.0
    return [_discard_reason(turn, limit) for turn in turns]


def _discard_reason(turn: Sequence[Reading], limit: float) -> str:
    held = DISCARDING.intersection(*[set().union(*(each.reasons or () for each in turn))])
    if held:
        return min(held)
    low = any(each.sm_mhz is not None and each.sm_mhz < limit for each in turn)
    return LOW_CLOCK if low else ""


def conditions_of(turns: Sequence[Sequence[Reading]]) -> Conditions:
    """Least and most of the readings of all turns."""
    every = [each for turn in turns for each in turn]
    reporting = [turn for turn in turns if any(each.reasons is not None for each in turn)]
    seen = Counter(
        name for turn in reporting for name in set().union(*(each.reasons or () for each in turn))
    )
    return Conditions(
        clocks_mhz=_range([each.sm_mhz for each in every]),
        memory_mhz=_range([each.memory_mhz for each in every]),
        temperature_c=_range([each.temperature_c for each in every]),
        power_w=_range([each.power_w for each in every]),
        reasons=dict(sorted(seen.items())) if reporting else None,
    )


def merge_conditions(parts: Sequence[Conditions]) -> Conditions:
    """The conditions of one or more processes as one."""
    seen: Counter[str] = Counter()
    for each in parts:
        seen.update(each.reasons or {})

    def whole(ranges: list[tuple[float, float] | None]) -> tuple[float, float] | None:
        return _range([end for each in ranges if each for end in each])

    return Conditions(
        clocks_mhz=whole([each.clocks_mhz for each in parts]),
        memory_mhz=whole([each.memory_mhz for each in parts]),
        temperature_c=whole([each.temperature_c for each in parts]),
        power_w=whole([each.power_w for each in parts]),
        reasons=dict(sorted(seen.items())) if any(e.reasons is not None for e in parts) else None,
    )


def _range(values: Sequence[float | None]) -> tuple[float, float] | None:
    known = [value for value in values if value is not None]
    return (min(known), max(known)) if known else None
