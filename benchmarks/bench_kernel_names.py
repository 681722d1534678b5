# SPDX-License-Identifier: Apache-2.0
"""What a launch pays for the length of the kernel's name, on an NVIDIA GPU.

    python bench_kernel_names.py --json kernel-names.json

One library has the same kernel under names of several lengths. A loop in C launches each of them
through the CUDA runtime; the time is the processor's, from the first launch to the return of the
last, while the GPU works behind. Each round takes every kernel once, in random order, and the
figure is the median of the rounds. ``nvcc`` is the one on PATH.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime as dt
import json
import platform
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

LENGTHS = (16, 32, 64, 128, 192, 256)
LAUNCHES = 400
HEAD = """#include <cuda_runtime.h>
#include <chrono>
"""
KERNEL = """
__global__ void {name}(float* y) {{ y[threadIdx.x] = 1; }}
extern "C" double time_{length}(float* y, int launches) {{
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < launches; ++i) {name}<<<1, 32>>>(y);
  const auto ended = std::chrono::steady_clock::now();
  if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess) return -1;
  return std::chrono::duration<double, std::nano>(ended - began).count() / launches;
}}
"""
MEMORY = 'extern "C" float* memory() { float* y; return cudaMalloc(&y, 128) ? nullptr : y; }\n'


def source() -> str:
    """The library: a mangled name is _Z, the length, the name and Pf for the parameter."""
    kernels = []
    for length in LENGTHS:
        digits = len(str(length - 6))
        name = f"k{length}_".ljust(length - len("_Z") - digits - len("Pf"), "x")
        kernels.append(KERNEL.format(name=name, length=length))
    return HEAD + "".join(kernels) + MEMORY


def main() -> None:
    """Compile, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        text, library = Path(directory, "names.cu"), Path(directory, "names.so")
        text.write_text(source())
        argv = ["nvcc", "-O2", "-arch=native", "-shared", "-Xcompiler", "-fPIC", "-o"]
        subprocess.run([*argv, str(library), str(text)], check=True)
        loaded = ctypes.CDLL(str(library))
    loaded.memory.restype = ctypes.c_void_p
    y = ctypes.c_void_p(loaded.memory())
    timers = {length: getattr(loaded, f"time_{length}") for length in LENGTHS}
    for timer in timers.values():
        timer.restype = ctypes.c_double
        timer(y, LAUNCHES)
    times: dict[int, list[float]] = {length: [] for length in LENGTHS}
    order = list(LENGTHS)
    for _ in range(options.rounds):
        random.shuffle(order)
        for length in order:
            times[length].append(timers[length](y, LAUNCHES))
    medians = {length: statistics.median(times[length]) for length in LENGTHS}
    slope = statistics.linear_regression(list(medians), list(medians.values())).slope
    gpu = subprocess.run(
        ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],  # noqa: S607 the driver's
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout.strip()
    release = subprocess.run(
        ["nvcc", "--version"],  # noqa: S607 the one on PATH
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": gpu,
        "nvcc": release.stdout.splitlines()[-1],
        "python": platform.python_version(),
        "ns_of_a_launch": {str(k): round(v, 1) for k, v in medians.items()},
        "ns_a_character": round(slope, 3),
        "table": {
            "title": f"What a launch pays for the length of a kernel's mangled name, on {gpu}",
            "head": ["characters", "launch"],
            "rows": [[str(k), f"{v:,.0f} ns"] for k, v in medians.items()],
            "note": f"{slope:.2f} ns a character. By `benchmarks/bench_kernel_names.py`.",
        },
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    for length, ns in medians.items():
        print(f"{length:4} characters {ns:8.1f} ns")
    print(f"{slope:.3f} ns a character")


if __name__ == "__main__":
    main()
