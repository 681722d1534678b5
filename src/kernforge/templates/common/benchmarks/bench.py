# SPDX-License-Identifier: __LICENSE__
"""The local build beside plain torch, on every device that both have.

    python benchmarks/bench.py

Bytes are what must move: each element read once and written once.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import torch
from torch.utils.benchmark import Timer

import kernforge
from kernforge.errors import NoVariantError

PROJECT = Path(__file__).parents[1]


def bench_shapes():
    spec = importlib.util.spec_from_file_location("cases", PROJECT / "cases.py")
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    return cases.BENCH_SHAPES


def in_torch(x, scale):
    return x.clamp(min=0) * scale


def main():
    directory = Path(os.environ.get("KERNFORGE_KERNEL_DIR", PROJECT / "build"))
    for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        try:
            kernel = kernforge.get_local_kernel(directory, backend=device)
        except NoVariantError:
            print(f"{device}: no build")
            continue
        for label, shape in bench_shapes().items():
            x = torch.randn(shape, device=device)
            contenders = {"__PYTHON_NAME__": kernel.__PYTHON_NAME__, "torch": in_torch}
            for name, function in contenders.items():
                timer = Timer(
                    "function(x, 1.5)",
                    globals={"function": function, "x": x},
                    num_threads=torch.get_num_threads(),
                )
                seconds = timer.blocked_autorange(min_run_time=0.3).median
                rate = 2 * x.numel() * x.element_size() / seconds / 1e9
                print(f"{device:5} {label:6} {name:24} {seconds * 1e6:10.1f} us {rate:8.1f} GB/s")


if __name__ == "__main__":
    main()
