# SPDX-License-Identifier: Apache-2.0
"""What keeps a launch from being faster, by its counters: rules in order, and one sentence.

The thresholds are those of Nsight Compute's rule "SpeedOfLight": a unit that is used for 80 % of its
peak is the limit, and where none reaches 60 %, the kernel waits (NVIDIA, Nsight Compute, Profiling
Guide, "Sections and Rules"). DRAM is compared with the copy, which reaches no more than 90 to 95 % of the
peak itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.bench.profiler import counters

if TYPE_CHECKING:
    from kernforge.bench.profiler.launches import KernelLaunch

AT_ITS_LIMIT, WAITS_BELOW = 0.8, 0.6
FULL = 0.95
"""From here on nothing is left to gain, and what warps wait for is not said."""
IDLE_BELOW = 0.75
"""Share of the time in which a multiprocessor has work, below which the grid is the limit."""
FEW_CYCLES = 0.05
"""Reasons with a smaller share of a warp's cycles are not named."""
_SHOWN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What binds a launch.

    Attributes:
        by: ``memory``, ``l2``, ``l1``, ``tensor``, ``fma``, ``alu``, ``fp64``, ``special``, ``issue``:
            the unit that is used most; ``grid``: multiprocessors have no work; ``waiting``: no unit
            is used much; ``not counted``.
        used: share of what that unit can do; of ``grid``, share of the time with work.
        sentence: the same in words.
    """

    by: str
    used: float | None
    sentence: str


_UNITS = {
    "l2": "the L2 cache",
    "l1": "the L1 cache with shared memory",
    "tensor": "the pipe of the tensor cores",
    "fma": "the pipe of multiply-add",
    "alu": "the pipe of integers and logic",
    "fp64": "the pipe of double precision",
    "special": "the pipe of special functions and conversions",
    "issue": "the issue of instructions",
}


def of_launch(launch: KernelLaunch, copy_bytes_per_s: float | None) -> Limit:
    """What binds a launch.

    Args:
        launch: the launch with its counters.
        copy_bytes_per_s: DRAM bytes a second of a copy, counted by the same tool; None: not known.
    """
    used = _used(launch, copy_bytes_per_s)
    if not used:
        return Limit(by="not counted", used=None, sentence="no counters: see the roofline")
    by = max(used, key=lambda unit: used[unit])
    share = used[by]
    what, of = _named(by, launch, copy_bytes_per_s)
    busiest = f"{what} is used most: {share:.0%} {of}"
    # Shares of pipes are those of the multiprocessors that have work.
    if launch.busy is not None and launch.busy < IDLE_BELOW and not _is_full(used):
        return Limit(by="grid", used=launch.busy, sentence=f"{_idle(launch)}; {busiest}")
    if share >= AT_ITS_LIMIT:
        rest = "" if share >= FULL else f"; {waiting(launch)}"
        return Limit(by=by, used=share, sentence=f"{what} is the limit: {share:.0%} {of}{rest}")
    if share >= WAITS_BELOW:
        return Limit(by=by, used=share, sentence=f"{busiest}; {waiting(launch)}")
    return Limit(by="waiting", used=share, sentence=f"{waiting(launch)}; {busiest}")


def _is_full(used: dict[str, float]) -> bool:
    """Whether memory or the L2 cache, which all multiprocessors share, is at its limit."""
    return max(used.get("memory", 0.0), used.get("l2", 0.0)) >= AT_ITS_LIMIT


def _used(launch: KernelLaunch, copy_bytes_per_s: float | None) -> dict[str, float]:
    """Share of what each unit can do, where it is counted."""
    used = {name: value for name in _UNITS if (value := getattr(launch, name)) is not None}
    rate = launch.dram_bytes_per_s
    if rate is not None and copy_bytes_per_s:
        used["memory"] = rate / copy_bytes_per_s
    elif launch.dram is not None:
        used["memory"] = launch.dram
    return used


def _named(by: str, launch: KernelLaunch, copy_bytes_per_s: float | None) -> tuple[str, str]:
    """A unit, and what its share is a part of."""
    rate = launch.dram_bytes_per_s
    if by == "memory" and rate is not None and copy_bytes_per_s:
        return f"DRAM at {rate / 1e9:.0f} GB/s", "of the copy"
    return "DRAM" if by == "memory" else _UNITS[by], "of its peak"


def _idle(launch: KernelLaunch) -> str:
    text = f"multiprocessors have no work for {1 - (launch.busy or 0.0):.0%} of the time"
    if launch.grid is None:
        return text
    blocks = math.prod(launch.grid)
    waves = f", {launch.waves:.2g} of what is resident at once" if launch.waves else ""
    return f"{text}; the grid has {blocks} {'block' if blocks == 1 else 'blocks'}{waves}"


def waiting(launch: KernelLaunch) -> str:
    """What a warp waits for between two instructions, and how many warps there are to fill that."""
    named = top_stalls(launch)
    warps = ""
    if launch.warps_active is not None and launch.warps_possible is not None:
        full = launch.warps_possible >= 1 or not launch.limits
        least = "" if full else f", limited by {' and '.join(launch.limits)}"
        warps = (
            f"; {launch.warps_active:.0%} of the warps are resident "
            f"({launch.warps_possible:.0%} possible{least})"
        )
    if not named or not launch.cycles:
        return f"it waits{warps}"
    (first, count), *rest = named
    reasons = f"{count:.1f} of them it waits for {counters.STALLS[first]}" + "".join(
        f", {count:.1f} for {counters.STALLS[name]}" for name, count in rest
    )
    return f"a warp issues every {launch.cycles:.1f} cycles: {reasons}{warps}"


def top_stalls(launch: KernelLaunch) -> list[tuple[str, float]]:
    """The reasons for which a warp waits longest, with the cycles."""
    total = launch.cycles or sum(launch.stalls.values())
    sizable = [(n, count) for n, count in launch.stalls.items() if count > FEW_CYCLES * total]
    return sorted(sizable, key=lambda each: -each[1])[:_SHOWN]
