# SPDX-License-Identifier: Apache-2.0
"""relu-scale on an NVIDIA GPU beside its peers: ``python .../bench_gpu.py --json out.json``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from sweep import Workload, main

ALPHA = 1.7
RTOL = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}


def plain(x):
    return torch.relu(x) * ALPHA


def workloads(kernel, dtype):
    yield Workload(
        name=f"relu_scale {dtype}",
        make=lambda n: (torch.randn(n, device="cuda").to(dtype),),
        calls={"ours": lambda x: kernel.relu_scale(x, ALPHA), "torch eager": plain},
        expression=plain,
        reference=lambda x: torch.relu(x.double()) * ALPHA,
        bytes_per_element=2 * dtype.itemsize,
        rtol=RTOL[dtype],
    )


if __name__ == "__main__":
    main("relu-scale", workloads)
