# SPDX-License-Identifier: Apache-2.0
"""A profile as text: the roofline, a table of the launches, and a sentence for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernforge.bench.text import duration, left_out, machine_line
from kernforge.system import tables

MOST = 12
"""Kernels of a call that are shown, those with the largest part of its time; all are in the document."""
_MORE_BYTES, _CONFLICTS = 1.1, 0.1
_WORTH_A_LINE = 0.05
_WHOLE_FROM, _KB = 100, 1000
_SHARES = ("tensor", "fma", "alu", "issue")
_COUNTED = ("DRAM", "L2", *_SHARES)


def lines(document: dict[str, Any]) -> Iterator[str]:
    """The profile, line by line."""
    tool = document["tool"]
    yield machine_line(document["machine"])
    yield f"kernels by {tool['name']} {tool['version']}: {tool['conditions']}"
    for work in document["workloads"]:
        yield ""
        yield from _workload(work)


def _workload(work: dict[str, Any]) -> Iterator[str]:
    yield f"{work['name']}: {roof_text(work['roofline'])}"
    for profile in work["profiles"]:
        if why := left_out(profile):
            yield f"{profile['candidate']}: {': '.join(why)}"
            continue
        yield from _profile(profile, work["roofline"])


def roof_text(roof: dict[str, Any]) -> str:
    """What a workload must do, and the least time of it."""
    rate = roof["product_flops_per_s"]
    what = f"{tables.size(roof['bytes'])} to move"
    if roof["flops"]:
        what += f", {roof['flops'] / 1e9:.4g} GFLOP, {_number(roof['intensity'])} FLOP a byte"
    ceilings = f"the copy {roof['copy_bytes_per_s'] / 1e9:.0f} GB/s"
    if rate:
        ceilings += f", torch's product {rate / 1e12:.0f} TFLOP/s, ridge {_number(roof['ridge'])} FLOP a byte"
    return f"{what}; {ceilings}; {roof['bound']} binds, {duration(roof['roof_ns'])} at least"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= _WHOLE_FROM else f"{value:.3g}"


def _profile(profile: dict[str, Any], roof: dict[str, Any]) -> Iterator[str]:
    launches = profile["launches"]
    yield f"{profile['candidate']}: {_reached(profile, roof)}"
    yield f"  {tables.counted(len(launches), 'launch', 'launches')}, {_sum(profile)}"
    if (counted := profile["dram_bytes"]) and counted > _MORE_BYTES * roof["bytes"]:
        yield (
            f"  DRAM moves {counted / roof['bytes']:.2f} times the bytes that the workload declares "
            f"({tables.size(round(counted))})"
        )
    groups = alike(launches)
    longest = sorted(range(len(groups)), key=lambda at: -groups[at]["time_ns"])[:MOST]
    shown = [(at + 1, groups[at]) for at in sorted(longest)]
    columns = [_row(number, each) for number, each in shown]
    kept = [i for i in range(len(HEAD)) if any(row[i] for row in columns)]
    table = tables.table(([row[i] for i in kept] for row in columns), head=[HEAD[i] for i in kept])
    yield from (f"  {line}" for line in table.splitlines())
    if len(groups) > MOST:
        yield f"  {len(groups) - MOST} shorter ones are not shown; --out has all"
    for number, each in shown:
        if each["share"] >= _WORTH_A_LINE and each["limit"]["by"] != "not counted":
            yield f"  {number}: {each['limit']['sentence']}"
            yield from (f"  {number}: {line}" for line in _costly(each))


def alike(launches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Launches of one kernel with one grid as one, with their number, and the counters of the longest."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for each in launches:
        groups.setdefault((each["kernel"], str(each.get("grid"))), []).append(each)
    return [
        max(group, key=lambda each: each["time_ns"])
        | {
            "count": len(group),
            "time_ns": sum(each["time_ns"] for each in group),
            "share": sum(each["share"] for each in group),
        }
        for group in groups.values()
    ]


def _reached(profile: dict[str, Any], roof: dict[str, Any]) -> str:
    if "median_ns" not in profile:
        return "no time"
    text = f"{duration(profile['median_ns'])}, {profile['share_of_roof']:.1%} of the roof"
    if roof["flops"]:
        text += f", {profile['flops_per_s'] / 1e12:.4g} TFLOP/s"
    return f"{text}, {profile['bytes_per_s'] / 1e9:.0f} GB/s (kernforge bench, cold)"


def _sum(profile: dict[str, Any]) -> str:
    text = f"{duration(profile['kernels_ns'])} in kernels"
    if profile["span_ns"] is not None:
        gaps = max(profile["span_ns"] - profile["kernels_ns"], 0.0)
        text += f", {duration(gaps)} between them"
    return text


HEAD = (
    *("", "kernel", "launches", "time", "share", "grid", "block", "registers", "shared"),
    *("occupancy", *_COUNTED),
)


def _row(number: int, launch: dict[str, Any]) -> tuple[str, ...]:
    dram = launch.get("dram_bytes_per_s")
    return (
        str(number),
        launch["name"],
        f"{launch['count']}" if launch["count"] > 1 else "",
        duration(launch["time_ns"]),
        f"{launch['share']:.0%}",
        _dimensions(launch.get("grid")),
        _dimensions(launch.get("block")),
        str(launch.get("registers", "")),
        _bytes(launch.get("shared_bytes", 0)),
        _occupancy(launch),
        "" if dram is None else f"{dram / 1e9:.0f} GB/s",
        *(f"{launch[name]:.0%}" if name in launch else "" for name in ("l2", *_SHARES)),
    )


def _bytes(count: int) -> str:
    return f"{count} B" if 0 < count < _KB else tables.size(count)


def _dimensions(sizes: Any) -> str:
    """Sizes without those of 1 at the end."""
    if not sizes:
        return ""
    x, y, z = sizes
    return " x ".join(map(str, (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))


def _occupancy(launch: dict[str, Any]) -> str:
    possible, active = launch.get("warps_possible"), launch.get("warps_active")
    if possible is None:
        return ""
    return f"{possible:.0%}" if active is None else f"{active:.0%} of {possible:.0%}"


def _costly(launch: dict[str, Any]) -> Iterator[str]:
    """What costs time without being a unit that is busy."""
    if sectors := launch.get("local_sectors"):
        yield (
            f"{tables.size(round(sectors * 32))} of local memory is read and written: spilled registers, "
            "or arrays that have no place in registers (kernforge resources)"
        )
    if launch.get("conflicts", 0.0) > _CONFLICTS:
        yield f"bank conflicts are {launch['conflicts']:.0%} of the accesses to shared memory"
