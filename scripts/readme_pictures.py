# SPDX-License-Identifier: Apache-2.0
"""Draw README's pictures: a terminal with a real run, and the chart of ``benchmarks/results``.

python scripts/readme_pictures.py terminal   # docs/terminal.svg
python scripts/readme_pictures.py speed      # docs/results/speed.svg
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"

STEPS = (
    "kernforge new my-kernel",
    "kernforge build my-kernel",
    "kernforge check my-kernel/build",
    "kernforge publish my-kernel --registry registry --repo-id me/my-kernel",
    "cat use.py",
    "python use.py",
)
USE = """import kernforge, torch

my_kernel = kernforge.get_kernel("me/my-kernel", version=1, registry="registry")
print(my_kernel.my_kernel(torch.tensor([-1.0, 0.0, 2.0])))
"""
WIDTH = 100

OURS, PEER, INK = "#2f81f7", "#8b949e", "#7d8590"  # grey text reads on light and dark pages
UNITS = {"ms": 1e-3, "us": 1e-6, "s": 1.0}
# A label, a stored table, (row, column) of kernforge and of its peer in the same run, the peer.
BARS = (
    (
        *("load_inline, first call", "jit.json"),
        *(("tutorial, kernforge", "cold"), ("tutorial, torch", "cold"), "torch's load_inline"),
    ),
    (
        *("load_inline, after an edit", "jit.json"),
        *(("tutorial, kernforge", "edit"), ("tutorial, torch", "edit"), "torch's load_inline"),
    ),
    (
        *("first get_kernel", "load.json"),
        ("first get_kernel", "kernforge, all digests verified"),
        ("first get_kernel", "kernels, none verified"),
        "kernels' get_kernel",
    ),
    (
        *("build for every torch and CUDA, CPU time", "build.json"),
        *(("cold", "kernforge"), ("cold", "cpp_extension"), "cpp_extension"),
    ),
)


def terminal() -> None:
    """Run the steps in an empty directory, and draw their output."""
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    programs = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
    with tempfile.TemporaryDirectory() as home, Path(os.devnull).open("w") as nowhere:
        console = Console(record=True, width=WIDTH, file=nowhere)
        Path(home, "use.py").write_text(USE)
        for step in STEPS:
            argv = ["/bin/bash", "-c", f"{step} 2>&1"]
            done = subprocess.run(argv, cwd=home, env=env, check=True, stdout=-1, text=True)
            console.print(Text.assemble(("$ ", "green"), (step, "bold")))
            console.print(Text(done.stdout.replace(home, "~").rstrip()))
    console.save_svg(str(ROOT / "docs" / "terminal.svg"), title="kernforge")


def seconds(file: str, row: str, column: str) -> float:
    """A cell's last number, in seconds if the cell has no unit."""
    table = json.loads((RESULTS / file).read_text())["table"]
    (cells,) = [cells for cells in table["rows"] if cells[0] == row]
    number, unit = re.findall(r"([\d.]+) ?([a-z]*)", cells[table["head"].index(column)])[-1]
    return float(number) * UNITS.get(unit, 1.0)


def text(value: float) -> str:
    """A time for people."""
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def speed() -> None:
    """One bar for kernforge and one for its peer; the peer's bars are equally long."""
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "kernforge", "font.size": 11}
    figure = Figure(figsize=(5.6, 0.95 * len(BARS) + 0.2), layout="constrained")
    axes = figure.add_subplot()
    for place, (title, file, our_cell, their_cell, peer) in enumerate(BARS):
        ours, theirs = seconds(file, *our_cell), seconds(file, *their_cell)
        axes.text(0, place - 0.42, title, va="bottom", color=INK, weight="bold")
        for shift, value, colour, label in (
            (-0.2, ours, OURS, f"{text(ours)}  kernforge"),
            (0.1, theirs, PEER, f"{text(theirs)}  {peer}, {theirs / ours:.2g}x"),
        ):
            axes.barh(place + shift, value / theirs, height=0.26, color=colour)
            axes.text(value / theirs + 0.015, place + shift, label, va="center", color=INK)
    axes.set_xlim(0, 2)
    axes.set_ylim(-0.75, len(BARS) - 0.7)
    axes.invert_yaxis()
    axes.axis("off")
    out = ROOT / "docs" / "results" / "speed.svg"
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    {"terminal": terminal, "speed": speed}[sys.argv[1]]()
