# SPDX-License-Identifier: Apache-2.0
"""vector-add on an NVIDIA GPU beside its peers: ``python .../bench_gpu.py --json out.json``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from sweep import Workload, main

RTOL = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}


def plain(a, b):
    return a + b


def workloads(kernel, dtype):
    yield Workload(
        name=f"vector_add {dtype}",
        make=lambda n: tuple(torch.randn(n, device="cuda").to(dtype) for _ in range(2)),
        # The last is torch's own kernel by torch.ops, the way of custom ops without a direct one.
        calls={
            "ours": kernel.vector_add,
            "torch eager": torch.add,
            "torch eager, by torch.ops": torch.ops.aten.add.Tensor,
        },
        expression=plain,
        reference=lambda a, b: a.double() + b.double(),
        bytes_per_element=3 * dtype.itemsize,
        rtol=RTOL[dtype],
    )


if __name__ == "__main__":
    main("vector-add", workloads)
