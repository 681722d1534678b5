# SPDX-License-Identifier: Apache-2.0
"""Draw the README's chart, docs/results/speed.svg, from ``benchmarks/results``.

    python scripts/speed_chart.py

One bar for kernforge and one for its peer of the same run; the peer's bars are equally long. Grey
text and no background, so that it reads on light and dark pages.
"""

from __future__ import annotations

import json
import re
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
    """Two cells of a stored table: (row, column) of kernforge and of its peer."""

    label: str
    file: str
    ours: tuple[str, str]
    theirs: tuple[str, str]
    peer: str

    @property
    def seconds(self) -> tuple[float, float]:
        """Both times: a cell's last number, in seconds if the cell has no unit."""
        table = json.loads((RESULTS / self.file).read_text())["table"]
        times = []
        for row, column in (self.ours, self.theirs):
            (cells,) = [cells for cells in table["rows"] if cells[0] == row]
            cell = cells[table["head"].index(column)]
            number, unit = re.findall(r"([\d.]+) ?([a-z]*)", cell)[-1]
            times.append(float(number) * UNITS.get(unit, 1.0))
        return times[0], times[1]


BARS = (
    Bar(
        *("load_inline, first call", "jit.json"),
        *(("tutorial, kernforge", "cold"), ("tutorial, torch", "cold"), "torch's load_inline"),
    ),
    Bar(
        *("load_inline, after an edit", "jit.json"),
        *(("tutorial, kernforge", "edit"), ("tutorial, torch", "edit"), "torch's load_inline"),
    ),
    Bar(
        "first get_kernel",
        "load.json",
        ("first get_kernel", "kernforge, all digests verified"),
        ("first get_kernel", "kernels, none verified"),
        "kernels' get_kernel",
    ),
    Bar(
        "build for every torch and CUDA, CPU time",
        "build.json",
        ("cold", "kernforge"),
        ("cold", "cpp_extension"),
        "cpp_extension",
    ),
)


def text(value: float) -> str:
    """A time for people."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def draw() -> Figure:
    """The chart."""
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "kernforge", "font.size": 11}
    figure = Figure(figsize=(5.6, 0.95 * len(BARS) + 0.2), layout="constrained")
    axes = figure.add_subplot()
    for place, bar in enumerate(BARS):
        ours, theirs = bar.seconds
        axes.text(0, place - 0.42, bar.label, va="bottom", color=INK, weight="bold")
        for shift, value, colour, label in (
            (-0.2, ours, OURS, f"{text(ours)}  kernforge"),
            (0.1, theirs, PEER, f"{text(theirs)}  {bar.peer}, {theirs / ours:.2g}x"),
        ):
            axes.barh(place + shift, value / theirs, height=0.26, color=colour)
            axes.text(value / theirs + 0.015, place + shift, label, va="center", color=INK)
    axes.set_xlim(0, 2)
    axes.set_ylim(-0.75, len(BARS) - 0.7)
    axes.invert_yaxis()
    axes.axis("off")
    return figure


if __name__ == "__main__":
    draw().savefig(OUT, format="svg", transparent=True, metadata={"Date": None})
