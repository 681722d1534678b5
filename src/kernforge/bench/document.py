# SPDX-License-Identifier: Apache-2.0
"""Measurements as rows of a document: medians, intervals, shares of the roof, ratios."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from kernforge.bench import roofline, text
from kernforge.bench.engine import stats
from kernforge.bench.engine import workload as engine_workload
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.bench.engine.samples import Measurement
    from kernforge.bench.engine.workload import Mode, Workload
    from kernforge.bench.roofline import Ceiling

_OWN = ("nothing", "copy", "product")
# A median whose interval has ends that differ by more than this factor says nothing.
_WIDEST = 1.5
_FEW_ROUNDS = 12


def case(
    workload: Workload, measurements: Sequence[Measurement], modes: Sequence[Mode], device: str
) -> dict[str, Any]:
    """A workload's part of the document.

    Args:
        measurements: measurements of all candidates, in these modes at least.

    Raises:
        UsageError: the copy could not be measured.
    """
    rows, ceilings = [], {}
    for mode in modes:
        here = [each for each in measurements if each.mode == mode]
        top = _ceiling(here, measurements, device)
        ceilings[mode] = dataclasses.asdict(top) | {"roof_ns": top.roof_ns, "bound": top.bound}
        racing = [each for each in here if each.kind not in _OWN]
        plain = [_row(each, top, device) for each in racing]
        rows += [
            row | _ratio(each, racing[0], row, plain[0])
            for each, row in zip(racing, plain, strict=True)
        ]
    return {
        "name": workload.name,
        "family": workload.family or "all",
        "size": workload.size,
        "shapes": [[*each.shape] for each in workload.tensors],
        "dtypes": [each.dtype for each in workload.tensors],
        "ceilings": ceilings,
        "results": rows,
    }


def _ceiling(
    here: Sequence[Measurement], measurements: Sequence[Measurement], device: str
) -> Ceiling:
    """The ceilings of a mode; the product's rate is that of hot turns, which is its best."""
    copies = next(each for each in here if each.kind == "copy")
    if copies.skipped:
        copies = next(each for each in measurements if each.kind == "copy" and each.mode == "hot")
    if not copies.times_ns:
        raise UsageError(f"{copies.workload}: the copy could not be measured: {_no_times(copies)}")
    products = [
        each.times_ns for each in measurements if each.kind == "product" and each.mode == "hot"
    ]
    return roofline.ceiling(
        moved=copies.moved,
        flops=copies.flops,
        copies=copies.times_ns,
        products=products[0] if products else (),
        side=engine_workload.SIDE[device],
    )


def _no_times(measured: Measurement) -> str:
    """Why there is no time; empty where there are enough."""
    if measured.refused:
        return measured.refused
    left = len(measured.kept.rounds)
    if left >= stats.FEWEST:
        return ""
    why = ", ".join(f"{name} {calls}" for name, calls in measured.kept.discarded_for.items())
    discarded = f"; calls discarded: {why}" if why else ""
    return f"{left} rounds were left to count: their median has no interval{discarded}"


def cannot_tell(middle: stats.Median, rounds: int) -> str:
    """Why a median is not a result; empty if its interval is narrow enough to be one."""
    if middle.high <= _WIDEST * middle.low:
        return ""
    span = f"{text.duration(middle.low)} and {text.duration(middle.high)}"
    why = (
        f"{rounds} rounds are too few"
        if rounds < _FEW_ROUNDS
        else "rounds differ too much: other work on this machine, or clocks that change"
    )
    return f"between {span}: {why}"


def _row(measured: Measurement, top: Ceiling, device: str) -> dict[str, Any]:
    kept = measured.kept
    row: dict[str, Any] = {
        "candidate": measured.candidate,
        "kind": measured.kind,
        "published": measured.kind == "kernel" and measured.candidate != "kernel",
        "mode": measured.mode,
        "rounds": len(kept.rounds),
        "samples": len(measured.times_ns),
        "calls": kept.calls,
        "in_a_row": kept.in_a_row,
        "discarded": kept.discarded,
        "discarded_for": kept.discarded_for,
        "checked": measured.checked,
        "conditions": dataclasses.asdict(kept.conditions) if kept.conditions else None,
        "refused": measured.refused,
        "skipped": measured.skipped,
    }
    if measured.skipped and not measured.refused:
        return row
    if wrong := _no_times(measured):
        return row | {"refused": wrong}
    middle = stats.of_rounds(kept.rounds)
    if middle.low <= 0:
        return row | {"refused": "its process reported calls that take no time"}
    if wrong := roofline.below_floor(middle.value, top, device):
        return row | {"refused": wrong}
    return row | {
        "cannot_tell": cannot_tell(middle, len(kept.rounds)),
        "median_ns": middle.value,
        "low_ns": middle.low,
        "high_ns": middle.high,
        "bytes_per_s": top.bytes / middle.value * 1e9,
        "flops_per_s": top.flops / middle.value * 1e9,
        "share_of_roof": top.roof_ns / middle.value,
        "round_medians_ns": list(stats.middles(kept.rounds).values()),
        "spread_ns": dataclasses.asdict(stats.spread(measured.times_ns)),
    }


def _ratio(
    measured: Measurement, first: Measurement, row: dict[str, Any], other: dict[str, Any]
) -> dict[str, Any]:
    """How many times as long a candidate takes as the first, which is the kernel, if both have times."""
    if measured is first or "median_ns" not in row or "median_ns" not in other:
        return {}
    ratio = stats.paired(measured.kept.rounds, first.kept.rounds)
    if ratio is None:
        return {}
    fields = dataclasses.asdict(ratio) | {"verdict": ratio.verdict}
    return {"beside": {"candidate": first.candidate, **fields}}
