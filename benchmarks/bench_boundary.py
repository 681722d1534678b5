# SPDX-License-Identifier: Apache-2.0
"""What the boundary costs: loads, builds without a change and looks into the store, before and now.

    git worktree add /tmp/before 34d38a2^
    python benchmarks/bench_boundary.py --before /tmp/before

Both versions run in turns in fresh processes, on one kernel, one project and stores of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import bench_load
from machine import describe

ROOT = Path(__file__).parents[1]
RESULT = Path(__file__).parent / "results" / "boundary.json"
RUNS = 5
_LOOKS = 500
STORE = f"""
import json, pathlib, sys, time
from kernforge.store.local import Store
from kernforge.system import files
store = Store(pathlib.Path(sys.argv[1]))
def fill(tree):
    for number in range(3):
        files.write_new(tree / f"out{{number}}", bytes(100_000))
wall, cpu = time.perf_counter(), time.process_time()
for number in range({_LOOKS}):
    store.tree("things", f"{{number:064x}}", fill)
made = time.perf_counter() - wall, time.process_time() - cpu
wall, cpu = time.perf_counter(), time.process_time()
for number in range({_LOOKS}):
    assert store.use("things", f"{{number:064x}}")
print(json.dumps([made, [time.perf_counter() - wall, time.process_time() - cpu]]))
"""


def child(source: Path, home: Path, *argv: str) -> tuple[str, list[float]]:
    """What a Python program of a version prints, and its wall and CPU seconds."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source / "src"),
        "KERNFORGE_HOME": str(home),
        "KERNFORGE_REGISTRY": str(home.parent / "registry"),
        "HF_HUB_OFFLINE": "1",
    }
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *argv], env=environment, check=True, capture_output=True, text=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, [wall, cpu]


def _link_toolchains(store: Path) -> None:
    """Give a store what this user's store has of compilers and headers, so that none is fetched."""
    own = Path("~/.cache/kernforge/store").expanduser()
    for part in ("toolchains", "recorded", "seen", "compilers", "used"):
        if (own / part).is_dir():
            store.mkdir(parents=True, exist_ok=True)
            subprocess.run(["/bin/cp", "-al", str(own / part), str(store)], check=True)


def measure(place: Path, sources: dict[str, Path]) -> dict[str, dict[str, list[list[float]]]]:
    """Wall and CPU seconds of each step and run, by version."""
    bench_load.make_kernel(place)
    now = sources["now"]
    new = ("new", "toy", "--minimal", "--backends", "cpu", "--dir", str(place))
    child(now, place / "now", "-m", "kernforge", *new)
    build = ("-m", "kernforge", "build", str(place / "toy"), "--quiet")
    for name, source in sources.items():
        _link_toolchains(place / name / "store")
        child(source, place / name, *build)
    found: dict[str, dict[str, list[list[float]]]] = {name: {} for name in sources}
    for run in range(RUNS):
        for name, source in sources.items():
            steps = found[name]
            code = bench_load.LOAD.format(client="kernforge", repo=bench_load.REPO)
            loads = json.loads(child(source, place / name, "-c", code)[0])
            for step, seconds in zip(bench_load.STEPS, loads, strict=True):
                steps.setdefault(step, []).append(seconds)
            steps.setdefault("build without a change", []).append(
                child(source, place / name, *build)[1]
            )
            store = place / f"{name}-{run}"
            made, used = json.loads(child(source, place / name, "-c", STORE, str(store))[0])
            steps.setdefault(f"{_LOOKS} trees into the store", []).append(made)
            steps.setdefault(f"{_LOOKS} looks into the store", []).append(used)
    return found


def main() -> None:
    """Measure, and write the result."""
    parser = argparse.ArgumentParser(description="what the boundary costs")
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the old version")
    before = parser.parse_args().before
    beside = Path("~/.cache").expanduser()  # hard links stay on one file system
    with tempfile.TemporaryDirectory(dir=beside if beside.is_dir() else None) as place:
        found = measure(Path(place), {"before": before, "now": ROOT})
    rows, figures = [], {}
    for step in found["now"]:
        repeats = 200 if step == bench_load.STEPS[-1] else 1
        medians = {
            name: [statistics.median(run[n] for run in steps[step]) * 1e3 / repeats for n in (0, 1)]
            for name, steps in found.items()
        }
        figures[step] = medians
        cells = [f"{medians[name][n]:.3g} ms" for name in ("before", "now") for n in (0, 1)]
        rows.append([step, *cells])
    document = {
        "machine": describe("torch"),
        "runs": RUNS,
        "median_ms": {"columns": ["wall", "cpu"], **figures},
        "table": {
            "title": "What it costs",
            "head": ["step", "before", "before, CPU", "now", "now, CPU"],
            "rows": rows,
            "note": f"Medians of {RUNS} runs in turns, beside other programs; before is `34d38a2^`. "
            "A repeated load is one of 200. A tree of the store has three files of 100 kB.",
        },
    }
    RESULT.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
