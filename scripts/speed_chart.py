# SPDX-License-Identifier: Apache-2.0
"""Draw the README's chart, docs/results/speed.svg, from ``benchmarks/results``: ``make docs``.

    python scripts/speed_chart.py

One bar for kernforge and one for its peer of the same run; the peer's bars are equally long. Grey
text and no background, so that it reads on light and dark pages. A row that no document has is left
out.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OUT = ROOT / "docs" / "results" / "speed.svg"
OURS, PEER, INK = "#2f81f7", "#8b949e", "#7d8590"
UNITS = {"ms": 1e-3, "us": 1e-6, "s": 1.0}


@dataclass(frozen=True)
class Bar:
    """Two cells of stored tables: (row, column) of ours and of the peer's.

    Attributes:
        files: documents, of which the first that is there counts.
    """

    label: str
    files: tuple[str, ...]
    ours: tuple[str, str]
    peer: tuple[str, str]
    name: str


JIT, PEERS_JIT = ("jit.json", "jit-cpu.json"), "torch's load_inline"
BARS = (
    Bar(
        *("load_inline, first call", JIT),
        *(("tutorial, kernforge", "cold"), ("tutorial, torch", "cold"), PEERS_JIT),
    ),
    Bar(
        *("load_inline, after an edit", JIT),
        *(("tutorial, kernforge", "edit"), ("tutorial, torch", "edit"), PEERS_JIT),
    ),
    Bar(
        "first get_kernel",
        ("load.json",),
        ("first get_kernel", "kernforge, all digests verified"),
        ("first get_kernel", "kernels, none verified"),
        "kernels' get_kernel",
    ),
    Bar(
        "build for every torch and CUDA, CPU time",
        ("build.json", "build-cpu.json"),
        ("cold", "kernforge"),
        ("cold", "cpp_extension"),
        "cpp_extension",
    ),
)


def seconds(table: dict[str, list[list[str]]], row: str, column: str) -> float:
    """A cell's last number in seconds; its unit stands in the cell, or it is seconds."""
    (cells,) = [cells for cells in table["rows"] if cells[0] == row]
    number, unit = re.findall(r"([\d.]+) ?([a-z]*)", cells[table["head"].index(column)])[-1]  # type: ignore[call-overload]
    return float(number) * UNITS.get(unit, 1.0)


def readings() -> list[tuple[str, str, float, float]]:
    """Label, peer, and both times of each bar whose document is there."""
    found = []
    for bar in BARS:
        path = next((RESULTS / name for name in bar.files if (RESULTS / name).exists()), None)
        if path is None:
            print(f"{bar.label}: none of {', '.join(bar.files)} is there", file=sys.stderr)
            continue
        table = json.loads(path.read_text())["table"]
        try:
            found.append(
                (bar.label, bar.name, seconds(table, *bar.ours), seconds(table, *bar.peer))
            )
        except ValueError:
            print(f"{bar.label}: {path.name} does not have it", file=sys.stderr)
    return found


def text(value: float) -> str:
    """A time for people."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def draw(bars: list[tuple[str, str, float, float]]) -> Figure:
    """The chart."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "kernforge", "font.size": 11}
    figure = Figure(figsize=(8.6, 0.95 * len(bars) + 0.2), layout="constrained")
    axes = figure.add_subplot()
    for place, (_, name, ours, peer) in enumerate(bars):
        for shift, value, colour, label in (
            (-0.2, ours, OURS, f"{text(ours)}  kernforge"),
            (0.2, peer, PEER, f"{text(peer)}  {name}, {peer / ours:.2g}x"),
        ):
            axes.barh(place + shift, value / peer, height=0.36, color=colour)
            axes.text(value / peer + 0.015, place + shift, label, va="center", color=INK)
    axes.set_yticks(range(len(bars)), [label for label, _, _, _ in bars], color=INK)
    axes.set_xlim(0, max(1.0, *(ours / peer for _, _, ours, peer in bars)) * 1.95)
    axes.invert_yaxis()
    axes.xaxis.set_visible(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    return figure


def main() -> None:
    """Draw it."""
    bars = readings()
    if not bars:
        sys.exit(
            "There is nothing to draw. Run benchmarks/bench_jit.py, bench_load.py, bench_build.py."
        )
    draw(bars).savefig(OUT, format="svg", transparent=True, metadata={"Date": None})
    print(OUT.relative_to(ROOT))


if __name__ == "__main__":
    main()
