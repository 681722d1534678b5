# SPDX-License-Identifier: Apache-2.0
"""The eight steps of docs/explanation/matmul-in-eight-steps.md beside cuBLAS, on an NVIDIA Hopper GPU.

    python bench_eight_steps.py --json eight-steps.json

Compiles tests/tutorials/matmul_steps with the ``nvcc`` on PATH, or takes ``--library``. Each step is
compared with float64 on some rows first. Then all take turns in random order, a matrix of another
kind is written over the L2 before every call, and the figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import random
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
STEPS = (
    "naive: one thread a result",
    "coalesced loads",
    "tiles in shared memory",
    "8 x 8 results a thread",
    "16-byte loads, cp.async",
    "tensor cores by mma.sync",
    "TMA, wgmma, mbarriers",
    "persistent, clusters, overlap",
)
CUBLAS = "cuBLAS (torch.mm)"
NEAR = 3e-3  # The rounding to bfloat16 alone is 1.7e-3 of the result.


def compiled(directory: Path) -> Path:
    """The steps as a library for compute capability 9.0a."""
    library = directory / "steps.so"
    argv = ["nvcc", "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-shared"]
    argv += ["-Xcompiler", "-fPIC", f"-I{ROOT}/src/kernforge/include/csrc"]
    argv += ["-o", str(library)]
    subprocess.run([*argv, str(ROOT / "tests/tutorials/matmul_steps/steps.cu")], check=True)
    return library


def contenders(
    library: Path, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> dict[str, Callable[[], object]]:
    """Functions that write a b to c, by name."""
    step = ctypes.CDLL(str(library)).matmul_step
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
    sizes = (a.shape[0], b.shape[1], a.shape[1])

    def run(number: int) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if error := step(number, *pointers, *sizes, stream):
            raise RuntimeError(f"step {number}: CUDA error {error}")

    own = {name: lambda i=i: run(i) for i, name in enumerate(STEPS, 1)}
    return own | {CUBLAS: lambda: torch.mm(a, b, out=c)}


def check(
    functions: dict[str, Callable[[], object]], a: torch.Tensor, b: torch.Tensor, c: torch.Tensor
) -> None:
    """Refuse to time what is wrong or leaves something unwritten."""
    rows = torch.randint(0, a.shape[0], (256,), device=a.device)
    exact = a[rows].double() @ b.double()
    for name, function in functions.items():
        c.fill_(float("nan"))
        function()
        off = ((c[rows].double() - exact).norm() / exact.norm()).item()
        if not off < NEAR or bool(c.isnan().any()):
            raise SystemExit(f"{name} is wrong: {off:.2e} of the result")


def measured(functions: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median microseconds of a call."""
    trash = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in functions}
    calls = dict.fromkeys(functions, 1)
    order = list(functions)
    for turn in range(rounds + 1):
        random.shuffle(order)
        for name in order:
            events = []
            for _ in range(calls[name]):
                trash.fill_(turn)
                pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
                pair[0].record()
                functions[name]()
                pair[1].record()
                events.append(pair)
            torch.cuda.synchronize()
            each = [first.elapsed_time(last) * 1e3 for first, last in events]
            if turn == 0:  # how long a call takes; blocks of some 20 ms follow
                calls[name] = max(1, min(60, int(2e4 / each[0])))
            else:
                times[name].append(statistics.median(each))
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Compile, check, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=4096, help="of the square matrices")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--library", type=Path, help="the steps, compiled")
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    torch.manual_seed(0)
    size = options.size
    a, b = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    with tempfile.TemporaryDirectory() as directory:
        library = options.library or compiled(Path(directory))
        functions = contenders(library.absolute(), a, b, c)
        check(functions, a, b, c)
        medians = measured(functions, options.rounds)
    flops = 2 * size**3
    rates = {name: flops / us / 1e6 for name, us in medians.items()}
    rows = [
        [
            str(i) if i <= len(STEPS) else "",
            name,
            f"{rates[name]:,.1f}",
            f"{100 * rates[name] / rates[CUBLAS]:.1f} %",
        ]
        for i, name in enumerate(rates, 1)
    ]
    gpu = torch.cuda.get_device_name()
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": gpu,
        "torch": torch.__version__,
        "size": size,
        "microseconds": {name: round(us, 2) for name, us in medians.items()},
        "tflops": {name: round(rate, 2) for name, rate in rates.items()},
        "table": {
            "title": f"Eight steps to a matrix product, {size} x {size} bfloat16, on {gpu}",
            "head": ["step", "what", "TFLOP/s", "of cuBLAS"],
            "rows": rows,
            "note": "Medians, interleaved in one run, cold L2. By `benchmarks/bench_eight_steps.py`;"
            " docs/explanation/matmul-in-eight-steps.md explains the steps.",
        },
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        print(" | ".join(row))


if __name__ == "__main__":
    main()
