# SPDX-License-Identifier: Apache-2.0
"""The time to load a kernel, beside the hub's own client, ``kernels``, in the same run.

    python benchmarks/bench_load.py

Both load one small kernel from one directory that both understand, in fresh processes that take
turns and have torch already. ``kernels`` is offline and checks no digest; kernforge checks all.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from results import RESULTS, describe, write

import kernforge
from kernforge.artifact.integrity import digest_tree
from kernforge.artifact.metadata import Metadata, Provenance
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

RUNS = 25
REPO = "bench/small"
BINARY_BYTES = 200_000
PACKAGE = {
    "__init__.py": "from . import layers\nfrom ._ops import name\n\n\ndef op(x):\n    return x\n",
    "_ops.py": "name = __name__\n",
    "layers.py": "class Op:\n    def forward(self, x):\n        return x\n",
}
IMPORT = """
import json, sys, time
wall, cpu = time.perf_counter(), time.process_time()
import {client}
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""
LOAD = """
import json, time
import torch

def now():
    return time.perf_counter(), time.process_time()

start = now()
from {client} import get_kernel
imported = now()
kernel = get_kernel("{repo}", version=1)
loaded = now()
for _ in range(200):
    assert get_kernel("{repo}", version=1) is kernel
repeated = now()
marks = [start, imported, loaded, repeated]
print(json.dumps([[b - a for a, b in zip(x, y)] for x, y in zip(marks, marks[1:])]))
"""
STEPS = ("import get_kernel", "first get_kernel", "repeated get_kernel")


def make_kernel(
    place: Path,
    repo_id: str = REPO,
    binary_bytes: int = BINARY_BYTES,
    package: Mapping[str, str] = PACKAGE,
) -> None:
    """Publish a kernel to a directory that is also the other client's cache."""
    directory = place / repo_id / "torch-universal"
    directory.mkdir(parents=True)
    for name, text in package.items():
        (directory / name).write_text(text)
    (directory / "weights.bin").write_bytes(b"w" * binary_bytes)
    metadata = Metadata(
        name=repo_id.partition("/")[2],
        id="_small_cpu_bench00",
        version=1,
        license="Apache-2.0",
        backend="cpu",
        provenance=Provenance(builder_version="0"),
        digest=digest_tree(directory),
    )
    (directory / "metadata.json").write_bytes(metadata.to_json())
    publish(directory.parent, DirectoryRegistry(place / "registry"), repo_id)


def child(place: Path, code: str) -> list[object]:
    """The JSON output of a program in a fresh process."""
    environment = {
        **os.environ,
        "KERNFORGE_HOME": str(place / "home"),
        "KERNFORGE_REGISTRY": str(place / "registry"),
        "KERNELS_CACHE": str(place / "registry"),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(Path(kernforge.__file__).parents[1]),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    argv = [sys.executable, "-c", code]
    found: list[object] = json.loads(subprocess.check_output(argv, env=environment, cwd=place))
    return found


def measure(place: Path) -> dict[str, dict[str, list[list[float]]]]:
    """Wall and CPU seconds of every step of every run, by client."""
    found: dict[str, dict[str, list[list[float]]]] = {}
    for _ in range(RUNS):
        for client in ("kernforge", "kernels"):
            steps = found.setdefault(client, {})
            steps.setdefault("import alone", []).append(child(place, IMPORT.format(client=client)))
            spent = child(place, LOAD.format(client=client, repo=REPO))
            for name, seconds in zip(STEPS, spent, strict=True):
                steps.setdefault(name, []).append(seconds)
    return found


def milliseconds(samples: list[list[float]], which: int, repeats: int = 1) -> float:
    """Median in milliseconds, of wall (0) or CPU (1) time."""
    return statistics.median(sample[which] for sample in samples) * 1e3 / repeats


def main() -> None:
    """Measure, and write the result."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        make_kernel(place)
        measured = measure(place)
    rows = []
    for step in ("import alone", *STEPS):
        repeats = 200 if step == STEPS[-1] else 1
        ours, theirs = (
            [milliseconds(measured[client][step], which, repeats) for which in (0, 1)]
            for client in ("kernforge", "kernels")
        )
        cells = [f"{ours[0]:.3g} ms", f"{theirs[0]:.3g} ms", f"{ours[1] / theirs[1]:.2g}"]
        rows.append([step, *cells])
    write(
        RESULTS / "load.json",
        describe("kernforge", "kernels", "torch"),
        title="Load one small kernel",
        head=["step", "kernforge, all digests verified", "kernels, none verified", "CPU ratio"],
        rows=rows,
        note=f"Medians of {RUNS} new processes each, in turns, offline with a filled cache. "
        "torch was imported before, except in the first row. By `benchmarks/bench_load.py`.",
    )


if __name__ == "__main__":
    main()
