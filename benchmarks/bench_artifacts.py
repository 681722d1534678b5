# SPDX-License-Identifier: Apache-2.0
"""Two builds of the example kernels on an NVIDIA GPU, in the same processes: is one slower?

    python bench_artifacts.py OLD NEW --json headers.json

OLD and NEW have a directory of variants for each kernel. Four times are taken of each call:

``python``  a loop from Python, per call: what a user pays for small tensors
``graph``   a loop in one CUDA graph, per call
``cold``    one call, the L2 cache overwritten and then filled with clean lines before it
``hot``     one call after another one of the same

Results have the same bits, or the run ends. Each round takes everyone once, in random order; the
ratio of a process is the median of its rounds' ratios. A process has the build that it loads first
at other addresses than the second, which alone is some percent of a call from Python: half of the
processes load the old build first, half the new one, and a ratio is their geometric mean. Noise is
what this mean may be off by: half the distance between the two orders, as a factor.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import platform
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import kernforge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    Call = Callable[[], torch.Tensor]
    """A kernel on fixed inputs."""

POWERS = (10, 14, 18, 22, 26)
# A loop of calls takes about so long, so that starting and ending it does not count.
LOOP_US = 1000.0
# From here on the GPU and not the launch decides.
LAUNCH_BOUND = 1 << 22
NAMES = ("old", "new")


def workloads(kernel: str, n: int) -> Iterator[tuple[str, Callable[[ModuleType], Call]]]:
    """What is measured of a kernel at n elements: a name, and the call of one build."""
    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(n, device="cuda").to(dtype) for _ in range(2))
        name = str(dtype).removeprefix("torch.")
        if kernel == "relu-scale":
            yield name, lambda m, x=x: lambda: m.relu_scale(x, 1.7)
            yield f"gradient {name}", lambda m, x=x, y=y: lambda: m._backward(y, x, 1.7)  # noqa: SLF001
        elif kernel == "gelu-approx":
            yield name, lambda m, x=x: lambda: m.gelu_approx(x)
            yield f"gradient {name}", lambda m, x=x, y=y: lambda: m._backward(y, x)  # noqa: SLF001
        elif kernel == "vector-add":
            yield name, lambda m, x=x, y=y: lambda: m.vector_add(x, y)
        elif kernel == "normalize-volume":
            v = torch.randint(0, 4096, (1, 1, n), device="cuda").to(torch.uint16)
            yield (
                f"given {name}",
                lambda m, v=v, d=dtype: lambda: m.normalize_volume(v, 99.5, 7.0, dtype=d),
            )
            yield f"computed {name}", lambda m, v=v, d=dtype: lambda: m.normalize_volume(v, dtype=d)
    if kernel == "img2gray":
        image = torch.randint(0, 256, (1, n // 32, 32, 3), device="cuda", dtype=torch.uint8)
        yield "uint8", lambda m: lambda: m.img2gray(image)


class L2:
    """Makes the cache hold nothing of what comes next, and nothing that must be written back."""

    def __init__(self) -> None:
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
        self.dirt = torch.empty(size, dtype=torch.uint8, device="cuda")
        self.clean = torch.ones(size // 4, dtype=torch.int32, device="cuda")

    def flush(self) -> None:
        """Work for some 100 us, in which the host gets ahead of the GPU."""
        self.dirt.zero_()
        self.clean.sum()


def timed(call: Callable[[], object]) -> float:
    """Microseconds between two events around a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def measures(how: str, call: Call, l2: L2, loop: int) -> Callable[[], float]:
    """A function that takes one time of a call, in microseconds."""
    if how == "cold":
        return lambda: (l2.flush(), timed(call))[1]
    if how == "hot":
        return lambda: (l2.flush(), call(), timed(call))[2]

    def calls() -> None:
        for _ in range(loop):
            call()

    if how == "python":
        return lambda: timed(calls) / loop
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        calls()
    return lambda: timed(graph.replay) / loop


def compare(how: str, calls: dict[str, Call], l2: L2, rounds: int) -> dict[str, list[float]]:
    """Microseconds by name and round; the first three rounds are left out."""
    once = min(timed(next(iter(calls.values()))) for _ in range(3))
    loop = max(4, min(200, round(LOOP_US / once)))
    takes = {name: measures(how, call, l2, loop) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    for turn in range(rounds + 3):
        random.shuffle(order)
        for name in order:
            took = takes[name]()
            if turn >= 3:  # noqa: PLR2004 - the first ones warm up
                times[name].append(took)
    return times


def ratio(of: list[float], to: list[float]) -> float:
    """The median of the rounds' ratios."""
    return round(statistics.median(a / b for a, b in zip(of, to, strict=True)), 4)


def rows(
    kernel: str, builds: dict[str, ModuleType], l2: L2, options: argparse.Namespace
) -> Iterator[dict[str, object]]:
    """One row for each workload, size and way."""
    for power in POWERS:
        n = 1 << power
        for name, of in workloads(kernel, n):
            calls = {who: of(builds[who]) for who in NAMES}
            first, second = calls["old"](), calls["new"]()
            if not torch.equal(first, second):
                raise SystemExit(f"{kernel} {name} 2^{power}: the builds differ")
            for how in ("python", "graph", "cold", "hot"):
                if n > LAUNCH_BOUND and how != "cold":
                    continue
                rounds = options.rounds if how in {"python", "graph"} else 3 * options.rounds
                times = compare(how, calls, l2, rounds)
                yield {
                    "kernel": kernel,
                    "workload": name,
                    "elements": n,
                    "how": how,
                    "old_us": round(statistics.median(times["old"]), 3),
                    "new_us": round(statistics.median(times["new"]), 3),
                    "ratio": ratio(times["new"], times["old"]),
                }
        torch.cuda.empty_cache()


def table(found: list[dict[str, object]], gpu: str) -> dict[str, object]:
    """Geometric means by kernel and way, the largest single ratio and the noise beside them."""
    ways = ("python", "graph", "cold", "hot")
    lines = []
    for kernel in dict.fromkeys(str(row["kernel"]) for row in found):
        cells = []
        for how in ways:
            of = [row for row in found if row["kernel"] == kernel and row["how"] == how]
            means = [
                math.exp(statistics.fmean(math.log(float(str(row[key]))) for row in of))
                for key in ("ratio", "noise")
            ]
            most = max(float(str(row["ratio"])) for row in of)
            cells.append(f"{means[0]:.3f} (largest {most:.3f}, noise {means[1]:.3f})")
        lines.append([kernel, *cells])
    return {
        "title": f"Two builds of each kernel, time of the new one by that of the old, on an {gpu}",
        "head": ["", *ways],
        "rows": lines,
        "note": "Geometric means over workloads and sizes of 2^10 to 2^26 elements, and over "
        "processes that load the old or the new build first; noise is half of what these differ "
        "by, as a factor.",
    }


def combined(orders: dict[str, list[list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """One row for each cell, of the same cell in every process."""
    found = []
    for cells in zip(*orders["old"], *orders["new"], strict=True):
        half = len(cells) // 2
        sides = [
            statistics.fmean(math.log(cell["ratio"]) for cell in part)
            for part in (cells[:half], cells[half:])
        ]
        found.append(
            {name: cells[0][name] for name in ("kernel", "workload", "elements", "how")}
            | {
                who: round(statistics.fmean(cell[who] for cell in cells), 3)
                for who in ("old_us", "new_us")
            }
            | {
                "ratio": round(math.exp(statistics.fmean(sides)), 4),
                "noise": round(math.exp(abs(sides[0] - sides[1]) / 2), 4),
            }
        )
    return found


def one_process(options: argparse.Namespace) -> None:
    """Print the rows of this process as JSON lines."""
    random.seed(0)
    torch.manual_seed(0)
    l2 = L2()
    kernels = options.kernel or sorted(p.name for p in options.new.iterdir() if p.is_dir())
    order = NAMES if options.first == "old" else NAMES[::-1]
    for kernel in kernels:
        builds = {
            name: kernforge.get_local_kernel(getattr(options, name) / kernel) for name in order
        }
        for row in rows(kernel, builds, l2, options):
            print(json.dumps(row), flush=True)


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a directory of variants for each kernel")
    parser.add_argument("new", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--rounds", type=int, default=60, help="of loops; single calls three times")
    parser.add_argument("--processes", type=int, default=1, help="of each order")
    parser.add_argument("--kernel", action="append", help="only this one; may be repeated")
    parser.add_argument("--first", choices=NAMES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first:
        one_process(options)
        return
    began = time.monotonic()
    device = torch.cuda.get_device_properties(0)
    orders: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in NAMES}
    for _ in range(options.processes):
        for name in NAMES:
            argv = [sys.executable, *sys.argv, "--first", name]
            done = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
            orders[name].append([json.loads(line) for line in done.stdout.splitlines()])
    found = combined(orders)
    for row in found:
        print(
            f"{row['kernel']:<17} {row['workload']:<18} {row['elements']:>9} {row['how']:<7}"
            f"{row['old_us']:>10} {row['new_us']:>10}  {row['ratio']:.4f}  {row['noise']:.4f}"
        )
    summary = table(found, device.name)
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": device.name,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "processes": 2 * options.processes,
        "seconds": round(time.monotonic() - began, 1),
        "rows": found,
        "table": summary,
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    for line in (summary["head"], *summary["rows"]):  # type: ignore[misc]
        print(" | ".join(line))
    slower = [row for row in found if row["ratio"] > 1.01 * row["noise"]]
    for row in slower:
        print("slower:", json.dumps(row))
    print(f"{len(found)} cells, {len(slower)} of them slower by more than 1 % and the noise")


if __name__ == "__main__":
    main()
