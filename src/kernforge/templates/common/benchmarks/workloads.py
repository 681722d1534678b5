# SPDX-License-Identifier: __LICENSE__
"""The workloads that `kernforge bench` measures, with their inputs and references."""

from __future__ import annotations

from kernforge import Tensor, Workload

SHAPES = {"small": (1024, 1024), "large": (4096, 4096)}

WORKLOADS = [
    Workload(
        name=f"{name} {dtype}",
        inputs=(Tensor(shape=shape, dtype=dtype), 1.5),
        reference=lambda x, scale: x.double().clamp(min=0) * scale,
    )
    for name, shape in SHAPES.items()
    for dtype in ("float32", "bfloat16")
]
