# SPDX-License-Identifier: Apache-2.0
"""The example kernels built for one CUDA beside the same sources built for another, on a GPU.

    kernforge build kernels/relu-scale --arch 9.0 --variant '*-cu128-*' -o builds/relu-scale
    kernforge build kernels/relu-scale --arch 9.0 --variant '*-cu130-*' -o builds/relu-scale
    ... (img2gray, normalize-volume, vector-add, gelu-approx)
    python bench_toolkits.py builds 12.8 13.0 --json cuda12-h200.json

Both are loaded into one process by path: a loader refuses the build that torch's CUDA does not fit,
rightly. So this compares machine code, fat binaries and launchers, not the pairing with a torch for
the other CUDA. Results must have the same bits. Times are microseconds a call in a CUDA graph, in
turns; the second build takes part twice, and the ratio of these two is the noise.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    Op = Callable[..., torch.Tensor]

KERNELS = ("img2gray", "relu-scale", "normalize-volume", "vector-add", "gelu-approx")
SIZES = (1, 7, 1000, 4096, 65536, 1 << 20, (1 << 20) + 13, 1 << 24)
TIMED = ((1 << 16, 200), (1 << 22, 50), (1 << 26, 8))  # elements, calls in a graph
INTEGERS = ("img2gray", "normalize-volume")


def load(builds: Path, kernel: str, cuda: str) -> Op:
    """The function of a build, by its path."""
    (variant,) = (builds / kernel).glob(f"*-cu{cuda.replace('.', '')}-*")
    function = kernel.replace("-", "_")
    name = f"{function}_cu{cuda.replace('.', '')}"
    spec = importlib.util.spec_from_file_location(
        name, variant / "__init__.py", submodule_search_locations=[str(variant)]
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"{variant} is not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    op: Op = getattr(module, function)
    return op


def inputs(kernel: str, n: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of about n elements."""
    torch.manual_seed(n)
    if kernel == "img2gray":
        side = int(n**0.5)
        return (torch.randint(0, 256, (side, side, 3), dtype=torch.uint8, device="cuda"),)
    if kernel == "normalize-volume":
        return (torch.randint(0, 4096, (1, 1, n), device="cuda").to(torch.uint16),)
    x = torch.randn(n, device="cuda").to(dtype)
    if kernel == "vector-add":
        return x, torch.randn(n, device="cuda").to(dtype)
    return (x, 1.5) if kernel == "relu-scale" else (x,)


def graph_of(op: Op, arguments: tuple[Any, ...], calls: int) -> torch.cuda.CUDAGraph:
    """Calls in a row, captured."""
    for _ in range(3):
        op(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            op(*arguments)
    return graph


def timed(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Microseconds of a call."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def same_bits(kernel: str, one: Op, other: Op) -> int:
    """Compare results; how many were."""
    floats = (torch.float32, torch.bfloat16, torch.float16)
    compared = 0
    for n in SIZES:
        for dtype in floats[:1] if kernel in INTEGERS else floats:
            given = inputs(kernel, n, dtype)
            if not torch.equal(one(*given).view(torch.uint8), other(*given).view(torch.uint8)):
                raise SystemExit(f"{kernel}: other bits at {n} elements, {dtype}")
            compared += 1
    return compared


def times(kernel: str, ops: dict[str, Op], n: int, calls: int, rounds: int) -> dict[str, Any]:
    """One row: the ops take turns, and each round's ratio counts once."""
    first, second, again = ops
    given = inputs(kernel, n, torch.float32)
    graphs = {name: graph_of(op, given, calls) for name, op in ops.items()}
    for graph in graphs.values():
        timed(graph, calls)
    taken: dict[str, list[float]] = {name: [] for name in graphs}
    order = list(graphs)
    for turn in range(rounds):
        for name in order[turn % 3 :] + order[: turn % 3]:
            taken[name].append(timed(graphs[name], calls))

    def ratio(a: str, b: str) -> float:
        pairs = zip(taken[a], taken[b], strict=True)
        return round(statistics.median(x / y for x, y in pairs), 4)

    medians = {name: round(statistics.median(us), 3) for name, us in taken.items()}
    return {
        "elements": n,
        "us": medians,
        "ratio": ratio(first, second),
        "noise": ratio(again, second),
    }


def table(kernels: dict[str, Any], first: str, second: str, gpu: str) -> dict[str, Any]:
    """For docs/results."""
    rows = [
        [
            *(kernel, f"{row['elements']:,}"),
            *(f"{row['us'][first]} us", f"{row['us'][second]} us"),
            *(f"{row['ratio']:.3f}", f"{row['noise']:.3f}"),
        ]
        for kernel, found in kernels.items()
        for row in found["times"]
    ]
    compared = sum(found["bit comparisons"] for found in kernels.values())
    return {
        "title": f"Built for CUDA {first} and for CUDA {second}, on an {gpu}",
        "head": ["kernel", "elements", f"CUDA {first}", f"CUDA {second}", "ratio", "noise"],
        "rows": rows,
        "note": f"A call in a CUDA graph. Noise is the ratio of the second build to itself. "
        f"{compared} results were compared and have the same bits. "
        "By `benchmarks/bench_toolkits.py`.",
    }


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", type=Path, help="a directory of variants for each kernel")
    parser.add_argument("first", help="a CUDA, such as 12.8")
    parser.add_argument("second", help="a CUDA, such as 13.0")
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    first, second = options.first, options.second
    kernels: dict[str, Any] = {}
    for kernel in KERNELS:
        one, other = (load(options.builds, kernel, cuda) for cuda in (first, second))
        ops = {first: one, second: other, f"{second} again": other}
        kernels[kernel] = {
            "bit comparisons": same_bits(kernel, one, other),
            "times": [times(kernel, ops, n, calls, options.rounds) for n, calls in TIMED],
        }
        print(kernel, json.dumps(kernels[kernel]), flush=True)
    gpu = torch.cuda.get_device_name()
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": gpu,
        "torch": torch.__version__,
        "kernels": kernels,
        "worst_ratio": max(row["ratio"] for of in kernels.values() for row in of["times"]),
        "table": table(kernels, first, second, gpu),
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    print(f"worst ratio {document['worst_ratio']}")


if __name__ == "__main__":
    main()
