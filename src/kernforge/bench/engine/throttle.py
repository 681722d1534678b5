# SPDX-License-Identifier: Apache-2.0
"""What a GPU's own word on its clocks says of a turn: whether its times count, and if not, why.

The bits are ``nvmlClocksEventReasons`` of NVML (nvml.h; "throttle reasons" before driver 535). A
GPU at its power limit is as fast as it can be for long, so that limit is recorded and discards
nothing; heat, a power brake and a fault of the hardware slow it down for a while, and do.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """What a GPU said of itself at one moment; None: it did not say.

    Attributes:
        sm_mhz: clock of the multiprocessors, MHz.
        memory_mhz: clock of the memory, MHz.
        temperature_c: temperature of the chip, degrees Celsius.
        power_w: power that it draws, watts.
        reasons: names of what holds its clocks back.
    """

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    reasons: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a GPU said during a candidate's turns: least and most, None where it did not say.

    Attributes:
        clocks_mhz: of the multiprocessors.
        memory_mhz: of the memory.
        temperature_c: degrees Celsius.
        power_w: watts.
        reasons: names of what held clocks back, with the number of turns that saw it; None where
            the GPU does not tell.
    """

    clocks_mhz: tuple[float, float] | None
    memory_mhz: tuple[float, float] | None
    temperature_c: tuple[float, float] | None
    power_w: tuple[float, float] | None
    reasons: dict[str, int] | None


def names(bits: int) -> frozenset[str]:
    """Reasons by their bits; one that NVML gained since keeps its number."""
    known = {name for bit, name in REASONS.items() if bits & bit}
    rest = bits & ~sum(REASONS)
    return frozenset(known | ({f"reason {rest:#x}"} if rest else set()))


def whys(turns: Sequence[Sequence[Reading]]) -> list[str]:
    """For each turn why its times do not count; empty where they do.

    Args:
        turns: the readings of each turn of one candidate. A turn is at a low clock below 95 % of
            the median over all turns.
    """
    clocks = [each.sm_mhz for turn in turns for each in turn if each.sm_mhz is not None]
    limit = _LEAST_SHARE * statistics.median(clocks) if clocks else 0.0
    return [_why(turn, limit) for turn in turns]


def _why(turn: Sequence[Reading], limit: float) -> str:
    held = DISCARDING.intersection(*[set().union(*(each.reasons or () for each in turn))])
    if held:
        return min(held)
    low = any(each.sm_mhz is not None and each.sm_mhz < limit for each in turn)
    return LOW_CLOCK if low else ""


def conditions(turns: Sequence[Sequence[Reading]]) -> Conditions:
    """The readings of all turns in short."""
    every = [each for turn in turns for each in turn]
    told = [turn for turn in turns if any(each.reasons is not None for each in turn)]
    seen = Counter(
        name for turn in told for name in set().union(*(each.reasons or () for each in turn))
    )
    return Conditions(
        clocks_mhz=_range([each.sm_mhz for each in every]),
        memory_mhz=_range([each.memory_mhz for each in every]),
        temperature_c=_range([each.temperature_c for each in every]),
        power_w=_range([each.power_w for each in every]),
        reasons=dict(sorted(seen.items())) if told else None,
    )


def merged(parts: Sequence[Conditions]) -> Conditions:
    """The conditions of several processes' turns in short; of at least one."""
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
