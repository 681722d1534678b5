# SPDX-License-Identifier: Apache-2.0
"""How a build scales with the number of actions that run at once.

    python benchmarks/bench_scaling.py --jobs 1 2 4 8 16
    python benchmarks/bench_scaling.py --cuda-home DIR --store home --lock home/kernforge.lock

The script makes a kernel project of many heavy units, all torch-free and equally heavy, and builds
it from an empty result store with each number of jobs; the toolchain is fetched before. Efficiency
is against the time that the same actions took with the first number of jobs (give 1), over the part of the
build in which there was an action to start for every job: what comes after, the last units and
the link, no scheduler can spread. The second form needs no network: see carry.py.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from machine import describe

from kernforge.system.environment import Environment
from kernforge.system.process import Command, run

RESULT = Path(__file__).parent / "results" / "scaling.json"
MANIFEST = """
[general]
name = "heavy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["{backend}"]
[torch]
stable-abi = "2.10"
src = ["torch-ext/torch_binding.cpp"]
[kernel.heavy]
backend = "{backend}"
depends = []
src = [{sources}]
{archs}
"""
BINDING = """#include <torch/csrc/stable/library.h>
#include "registration.h"
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("nothing() -> ()"); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
# Unrolled arithmetic, instantiated many times: long in the optimiser, as real kernels are.
CUDA_UNIT = """
template <int N> __global__ void kernel{unit}(float* x) {{
  float v = x[threadIdx.x];
#pragma unroll
  for (int i = 0; i < 64 + N; ++i) v = v * (v + i) - x[(i * N) % 97];
  x[threadIdx.x] = v;
}}
template <int N> void launch{unit}(float* x) {{
  kernel{unit}<N><<<1, 128>>>(x);
  if constexpr (N > 0) launch{unit}<N - 1>(x);
}}
void unit{unit}(float* x) {{ launch{unit}<{weight}>(x); }}
"""
CPU_UNIT = """#include <regex>
template <int N> struct S{unit} {{ std::regex r; S{unit}<N - 1> s; }};
template <> struct S{unit}<0> {{}};
void* unit{unit}() {{ return new S{unit}<{weight}>(); }}
"""


def write_project(root: Path, *, backend: str, units: int, weight: int) -> Path:
    """Write the project of equally heavy units."""
    suffix, text = ("cu", CUDA_UNIT) if backend == "cuda" else ("cpp", CPU_UNIT)
    names = [f"unit{number}.{suffix}" for number in range(units)]
    archs = 'cuda-capabilities = ["9.0"]' if backend == "cuda" else ""
    sources = ", ".join(f'"{name}"' for name in names)
    content = {
        "build.toml": MANIFEST.format(backend=backend, sources=sources, archs=archs),
        "torch-ext/torch_binding.cpp": BINDING,
        "torch-ext/heavy/__init__.py": "from ._ops import ops\n",
    }
    content |= {n: text.format(unit=i, weight=weight) for i, n in enumerate(names)}
    for path, data in content.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(data)
    return root


def build(project: Path, *, jobs: int, toolchains: Path, options: list[str]) -> dict[str, object]:
    """Build from an empty result store; returns what the build says of its actions."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        store.mkdir()
        (store / "toolchains").symlink_to(toolchains.absolute())
        argv = [sys.executable, "-m", "kernforge", "build", str(project), "--json", "--quiet"]
        argv += ["--jobs", str(jobs), "--no-check", "--out", str(Path(directory) / "out")]
        argv += options
        done = run(Command(argv=tuple(argv), env={**os.environ, "KERNFORGE_HOME": directory}))
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    found: dict[str, object] = json.loads(done.stdout)["actions"]
    return found


def efficiency(actions: list[dict], baseline: dict[str, float], jobs: int) -> float:
    """Share of linear, until the last action was started."""
    actions = [one for one in actions if not one["title"].startswith("link ")]
    end = max(one["start_s"] for one in actions)
    finished = 0.0
    for one in actions:
        within = min(end, one["start_s"] + one["wall_s"]) - one["start_s"]
        finished += baseline[one["key"]] * (within / one["wall_s"] if one["wall_s"] else 1.0)
    return finished / (jobs * end)


def main() -> None:
    """Measure and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--units", type=int, default=64)
    parser.add_argument("--weight", type=int, default=12, help="instantiations in a unit")
    parser.add_argument("--backend", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--json", type=Path, default=RESULT)
    parser.add_argument("--store", type=Path, help="a home whose toolchains are used")
    parser.add_argument("--lock", type=Path, help="a kernforge.lock for the project")
    parser.add_argument("--cuda-home", type=Path, help="a toolkit, which must be 13.0")
    arguments = parser.parse_args()
    base = arguments.store or Environment.read().home
    options = ["--cuda-home", str(arguments.cuda_home)] if arguments.cuda_home else []
    options += ["--variant", "*-cpu-*" if arguments.backend == "cpu" else "*-cu130-*"]
    cases = []
    baseline: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as directory:
        project = write_project(
            Path(directory),
            backend=arguments.backend,
            units=arguments.units,
            weight=arguments.weight,
        )
        if arguments.lock:
            shutil.copy(arguments.lock, project / "kernforge.lock")
        # Fetches the toolchain, and lets the first measured build know what the others know.
        warm = [sys.executable, "-m", "kernforge", "build", str(project), "--no-check", *options]
        done = run(Command(argv=tuple(warm), env={**os.environ, "KERNFORGE_HOME": str(base)}))
        if done.returncode:
            sys.exit(done.stderr)
        for jobs in arguments.jobs:
            document = build(
                project, jobs=jobs, toolchains=base / "store" / "toolchains", options=options
            )
            spent = document["spent"]
            baseline = baseline or {one["key"]: one["wall_s"] for one in spent}
            share = efficiency(spent, baseline, jobs)
            cases.append(
                {
                    "jobs": jobs,
                    "wall_s": document["wall_s"],
                    "cpu_s": document["cpu_s"],
                    "efficiency": share,
                    "peak_bytes_of_one": document["peak_bytes"],
                }
            )
            print(jobs, f"{document['wall_s']:.1f} s", f"{share:.2f}", flush=True)
    first = cases[0]["wall_s"]
    document = {
        "machine": describe("kernforge"),
        "backend": arguments.backend,
        "units": arguments.units,
        "weight": arguments.weight,
        "cases": cases,
        "table": {
            "title": f"{arguments.units} large {arguments.backend} units by number of jobs",
            "head": ["jobs", "wall s", "speed-up", "share of linear"],
            "rows": [
                [
                    c["jobs"],
                    f"{c['wall_s']:.1f}",
                    f"{first / c['wall_s']:.2f}x",
                    f"{c['efficiency']:.2f}",
                ]
                for c in cases
            ],
            "note": "No stored results, toolchain in the store. Share of linear: while actions are left.",
        },
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
