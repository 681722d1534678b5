# SPDX-License-Identifier: Apache-2.0
"""normalize-volume on an NVIDIA GPU beside its peers: ``python .../bench_gpu.py --json out.json``.

Elements are voxels of uint16 volumes. The computed mean and deviation need the volume twice, which
is counted, also where it stays in the cache.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from sweep import Workload, main

_spec = importlib.util.spec_from_file_location(
    "reference", Path(__file__).parents[1] / "reference.py"
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

MEAN, STD = 31234.5, 4321.25
RTOL = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 5e-3}


def volume(n):
    """Voxels ``[n / 1024, 32, 32]``."""
    drawn = torch.randint(0, 1 << 16, (n,), dtype=torch.int32, device="cuda")
    return drawn.to(torch.uint16).view(-1, 32, 32)


def workloads(kernel, dtype):
    def given(v):
        return ((v.float() - MEAN) / STD).to(dtype)

    def computed(v):
        v = v.float()
        return ((v - v.mean()) / v.std(correction=0)).to(dtype)

    yield Workload(
        name=f"normalize_volume given {dtype}",
        make=lambda n: (volume(n),),
        calls={
            "ours": lambda v: kernel.normalize_volume(v, MEAN, STD, dtype=dtype),
            "torch eager": given,
        },
        expression=given,
        reference=lambda v: reference.normalize_volume(v, MEAN, STD),
        bytes_per_element=2 + dtype.itemsize,
        rtol=RTOL[dtype],
    )
    yield Workload(
        name=f"normalize_volume computed {dtype}",
        make=lambda n: (volume(n),),
        calls={
            "ours": lambda v: kernel.normalize_volume(v, dtype=dtype),
            "torch eager": computed,
        },
        expression=computed,
        reference=reference.normalize_volume,
        bytes_per_element=4 + dtype.itemsize,
        rtol=RTOL[dtype],
    )


if __name__ == "__main__":
    main("normalize-volume", workloads)
