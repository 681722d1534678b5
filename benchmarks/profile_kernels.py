# SPDX-License-Identifier: Apache-2.0
"""Profile the kernels of the repository, one or two workloads of each, on an NVIDIA GPU.

    python benchmarks/profile_kernels.py --json profile-h200.json

It needs Nsight Compute, and kernels that were built (``kernforge build kernels/NAME``). Each project is profiled as by
``kernforge profile``; what is stored has every document, and a table of the launch that takes longest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernforge.bench.profiler import counters, text
from kernforge.bench.text import duration

KERNELS = Path(__file__).parents[1] / "kernels"
WORKLOADS = {
    "linear-gelu": ("8192 x 4096 -> 16384 bfloat16", "16 x 8192 -> 8192 bfloat16"),
    "bitonic-sort": ("sort 16384 x 1024 float32", "sort 16 x 1048576 float32"),
    "moe": (
        "4096 tokens, 8 of 128, 2048 x 768 bfloat16",
        "16 tokens, 8 of 128, 2048 x 768 bfloat16",
    ),
    "layer-norm": ("layer 8192 x 4096 bfloat16", "layer backward 8192 x 4096 bfloat16"),
    "matmul": ("8192 x 8192 x 8192 bfloat16",),
    "gelu-approx": ("bfloat16 67108864",),
    "img2gray": ("8640x15360x3",),
    "normalize-volume": ("computed float32 512x512x512",),
    "relu-scale": ("float32 67108864",),
    "vector-add": ("float32 67108864",),
}
HEAD = [
    *("kernel: workload", "time", "of the roof", "longest kernel", "of the time"),
    *("what is used most", "a warp waits for, of its cycles", "warps resident"),
]
BY = {
    "memory": "DRAM, {used:.0%} of the copy",
    "l2": "L2 cache, {used:.0%}",
    "l1": "L1 cache and shared memory, {used:.0%}",
    "tensor": "tensor cores, {used:.0%}",
    "fma": "multiply-add, {used:.0%}",
    "alu": "integers and logic, {used:.0%}",
    "fp64": "double precision, {used:.0%}",
    "special": "special functions, {used:.0%}",
    "issue": "issue of instructions, {used:.0%}",
    "grid": "no work for multiprocessors, {idle:.0%} of the time",
    "waiting": "nothing above {used:.0%}",
}


def rows(document: dict[str, Any]) -> list[list[str]]:
    """The rows of a project in the table."""
    found = []
    for work in document["workloads"]:
        for profile in work["profiles"]:
            longest = max(text.alike(profile["launches"]), key=lambda e: e["time_ns"], default=None)
            if longest is None or "median_ns" not in profile:
                continue
            found.append(
                [
                    f"{document['project']}: {work['name']}",
                    duration(profile["median_ns"]),
                    f"{profile['share_of_roof']:.0%}",
                    f"`{longest['name']}`",
                    f"{longest['share']:.0%}",
                    bound(longest["limit"]),
                    waits(longest),
                    f"{longest['warps_active']:.0%}",
                ]
            )
    return found


def bound(limit: dict[str, Any]) -> str:
    """What a kernel uses most, in a few words."""
    used = limit["used"]
    return BY[limit["by"]].format(used=used, idle=1 - used)


def waits(launch: dict[str, Any]) -> str:
    """The reason for which a warp waits longest."""
    reason, cycles = max(launch["stalls"].items(), key=lambda each: each[1])
    return f"{counters.STALLS[reason]}, {cycles:.1f} of {launch['cycles']:.1f}"


def main() -> None:
    """Profile, print, store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help="only these (default: all)")
    parser.add_argument("--json", type=Path, help="write the documents there")
    options = parser.parse_args()
    documents: list[dict[str, Any]] = []
    for name in options.kernels or WORKLOADS:
        if (document := profiled(name)) is None:
            continue
        documents.append(document)
        for row in rows(document):
            print(*row, sep=" | ", flush=True)
        if options.json:  # what is interrupted keeps what is done
            options.json.write_text(json.dumps(stored(documents), indent=1) + "\n")


def profiled(name: str) -> dict[str, Any] | None:
    """The document of a kernel; None where the command gives none, which says why itself."""
    chosen = [part for each in WORKLOADS[name] for part in ("--workload", each)]
    argv = [sys.executable, "-m", "kernforge", "profile", str(KERNELS / name), *chosen]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "profile.json")
        subprocess.run([*argv, "--tool", "ncu", "--out", str(out)], check=False)
        document: dict[str, Any] | None = json.loads(out.read_text()) if out.is_file() else None
    return document


def stored(documents: list[dict[str, Any]]) -> dict[str, Any]:
    """What is stored, with its table."""
    gpu = documents[0]["machine"]["gpu"]
    tool = documents[0]["tool"]
    return {
        "table": {
            "title": f"What binds the kernels on an {gpu}",
            "head": HEAD,
            "rows": [row for document in documents for row in rows(document)],
            "note": f"By `kernforge profile`, with {tool['name']} {tool['version']}: times and shares of "
            "the roof are those of `kernforge bench`, cold; the rest is counted in one call, "
            f"{tool['conditions']}.",
        },
        "projects": documents,
    }


if __name__ == "__main__":
    main()
