# SPDX-License-Identifier: Apache-2.0
"""What the five larger kernels were to reach on an H200, and what was measured.

The times are those of ``benchmarks/results/KERNEL-h200.json`` and ``KERNEL-bench-h200.json``: a document
of ``kernforge bench``, or one with ``rows`` of a workload, a contender's name and its median.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OURS = re.compile(r"kernel\b|linear_gelu|matmul|bitonic_sort|moe|layer_norm")
"""Names of the kernel itself; other names that begin so are variants of it, which are no peers."""


@dataclass(frozen=True)
class Times:
    """Of one workload.

    Attributes:
        us: microseconds of a call with cold caches, by contender; the kernel itself is ``kernel``.
        of_copy: the share of the time of a copy of as many bytes, if the document has it.
        unsure: contenders whose time ``kernforge bench`` cannot tell from the kernel's.
    """

    us: dict[str, float]
    of_copy: float | None = None
    unsure: frozenset[str] = frozenset()

    @property
    def ours(self) -> float:
        """Of the kernel."""
        return self.us["kernel"]

    def fastest(self, pattern: str = "", but: str = "nothing") -> float:
        """Of the fastest peer with such a name.

        Raises:
            KeyError: there is none.
        """
        names = [n for n in self.us if re.search(pattern, n) and not re.search(but, n)]
        found = [self.us[n] for n in names if not OURS.match(n)]
        if not found:
            raise KeyError(pattern)
        return min(found)


Reading = tuple[str, bool]
"""What the table shows, and whether it is enough."""


@dataclass(frozen=True)
class Bar:
    """One row.

    Attributes:
        kernel: whose documents are read.
        workload: the beginning of the workload's name.
        at_least: what was wanted.
        read: what was measured, of the times.
    """

    kernel: str
    workload: str
    at_least: str
    read: Callable[[Times], Reading]


def ratio(least: float, pattern: str = "", but: str = "nothing") -> Callable[[Times], Reading]:
    """A peer's time by the kernel's."""

    def read(times: Times) -> Reading:
        value = times.fastest(pattern, but) / times.ours
        return f"{value:.3f}", value >= least

    return read


def ahead_of_all(times: Times) -> Reading:
    """The time of the fastest peer by the kernel's; a difference that is not sure does not count."""
    value = times.fastest() / times.ours
    unsure = any(times.us[name] == times.fastest() for name in times.unsure)
    return f"{value:.3f}{', not sure' if unsure else ''}", value > 1 and not unsure


def rate(least: float, operations: float, *, ahead: bool = False) -> Callable[[Times], Reading]:
    """TFLOP/s."""

    def read(times: Times) -> Reading:
        value = operations / times.ours / 1e6
        if not ahead:
            return f"{value:.0f} TFLOP/s", value >= least
        peer = operations / times.fastest() / 1e6
        return f"{value:.0f} TFLOP/s, the best peer {peer:.0f}", value >= max(least, peer)

    return read


def microseconds(most: float) -> Callable[[Times], Reading]:
    """The time itself."""
    return lambda times: (f"{times.ours:,.1f} us", times.ours <= most)


def of_copy(least: float) -> Callable[[Times], Reading]:
    """The share of what a copy of as many bytes moves in a second."""

    def read(times: Times) -> Reading:
        if times.of_copy is None:
            raise KeyError("copy")
        return f"{100 * times.of_copy:.1f} %", times.of_copy >= least

    return read


_ALONE = "linear alone"
_SORT = r"torch\.sort|torch eager"  # torch.compile makes another sort of short rows
BARS = (
    *(
        bar
        for size in ("8192 x 4096 -> 16384", "4096 x 8192 -> 8192", "2048 x 4096 -> 4096")
        for bar in (
            Bar(
                "linear-gelu",
                f"{size} bfloat16",
                "0.98 of linear alone",
                ratio(0.98, _ALONE),
            ),
            Bar(
                "linear-gelu",
                f"{size} bfloat16",
                "5 % ahead of every fused peer",
                ratio(1.05, but=f"{_ALONE}|then gelu|eager"),
            ),
        )
    ),
    Bar("linear-gelu", "32 x 768 -> 3072 bfloat16", "linear alone", ratio(1.0, f"{_ALONE}$")),
    Bar("linear-gelu", "32 x 768 -> 3072 float32", "linear alone", ratio(1.0, f"{_ALONE}$")),
    Bar("linear-gelu", "1 x 8192 -> 8192 bfloat16", "90 % of the copy", of_copy(0.9)),
    Bar("linear-gelu", "16 x 8192 -> 8192 bfloat16", "90 % of the copy", of_copy(0.9)),
    *(
        Bar("matmul", f"{size} bfloat16", "1.00 of cuBLAS", ratio(1.0))
        for size in ("8192 x 8192 x 8192", "4096 x 4096 x 4096", "2048 x 4096 x 4096")
    ),
    Bar("matmul", "16384 x 1024 x 16384 bfloat16", "1.03 of cuBLAS, as one size", ratio(1.03)),
    Bar("bitonic-sort", "sort 16384 x 1024 float32", "140 us", microseconds(140)),
    Bar("bitonic-sort", "sort 65536 x 128 float32", "4 times torch.sort", ratio(4, _SORT)),
    Bar("bitonic-sort", "sort 4096 x 4096 float32", "4 times torch.sort", ratio(4, _SORT)),
    Bar("bitonic-sort", "sort 1 x 67108864 float32", "CUB", ratio(1.0, "cub|CUB", "keys alone")),
    Bar(
        "moe",
        "4096 tokens, 2 of 8",
        "620 TFLOP/s",
        rate(620, 6 * 4096 * 2 * 4096 * 14336),
    ),
    Bar(
        "moe",
        "4096 tokens, 8 of 128",
        "450 TFLOP/s, ahead of all",
        rate(450, 6 * 4096 * 8 * 2048 * 768, ahead=True),
    ),
    Bar("moe", "16 tokens, 8 of 128", "220 us", microseconds(220)),
    Bar("layer-norm", "layer 8192 x 4096 bfloat16", "95 % of the copy", of_copy(0.95)),
    Bar("layer-norm", "rms 8192 x 4096 bfloat16", "95 % of the copy", of_copy(0.95)),
    Bar("layer-norm", "layer backward 8192 x 4096 bfloat16", "ahead of all", ahead_of_all),
    Bar("layer-norm", "rms backward 8192 x 4096 bfloat16", "ahead of all", ahead_of_all),
)


def times(document: dict[str, Any]) -> dict[str, Times]:
    """Of each workload of a document."""
    found = {}
    for workload in document.get("workloads", ()):
        cold = [
            each
            for each in workload["results"]
            if each["mode"] == "cold" and each.get("median_ns") and not each["refused"]
        ]
        own = [each for each in cold if each["candidate"] == "kernel"]
        if own:
            us = {each["candidate"]: each["median_ns"] / 1e3 for each in cold}
            unsure = {
                each["candidate"]
                for each in cold
                if (each.get("beside") or {}).get("verdict") == "unsure"
            }
            found[workload["name"]] = Times(us, own[0]["share_of_roof"], frozenset(unsure))
    for row in document.get("rows", ()):
        if "median_us" not in row:
            continue
        own = bool(OURS.fullmatch(row["name"]))
        one = found.setdefault(row["workload"], Times({}))
        one.us.setdefault("kernel" if own else row["name"], row["median_us"])
        if own and "share_of_copy" in row:
            found[row["workload"]] = Times(one.us, row["share_of_copy"])
    return {name: one for name, one in found.items() if "kernel" in one.us}


def readings(results: Path) -> list[tuple[Bar, Reading | None]]:
    """Each bar, and what was measured of it; None if nothing was."""
    known: dict[str, dict[str, Times]] = {}
    for kernel in {bar.kernel for bar in BARS}:
        known[kernel] = {}
        for name in (f"{kernel}-bench-h200.json", f"{kernel}-h200.json"):
            if (results / name).exists():
                known[kernel] |= times(json.loads((results / name).read_text()))
    found: list[tuple[Bar, Reading | None]] = []
    for bar in BARS:
        fitting = [one for name, one in known[bar.kernel].items() if name.startswith(bar.workload)]
        try:
            found.append((bar, bar.read(fitting[0]) if fitting else None))
        except KeyError:
            found.append((bar, None))
    return found


def table(results: Path) -> str:
    """The section of the page."""
    lines = [
        "## The bars of the five larger kernels\n",
        "| kernel | case | at least | measured | reached |",
        "| --- | --- | --- | --- | --- |",
    ]
    for bar, reading in readings(results):
        value, enough = reading or ("not measured", False)
        reached = "yes" if enough else "no" if reading else ""
        lines.append(f"| {bar.kernel} | {bar.workload} | {bar.at_least} | {value} | {reached} |")
    text = (
        "A ratio is the peer's time by the kernel's, both of one run with cold caches. From the tables "
        "below;\nwhy a bar is not reached is in the kernel's README."
    )
    return "\n".join([*lines, "", text, ""])
