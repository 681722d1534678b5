# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: one tensor, of any size with --sizes."""

from reference import relu_scale

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name=f"relu-scale {dtype}",
        inputs=(Tensor(shape=(1 << 24,), dtype=dtype), 1.7),
        reference=relu_scale,
    )
    for dtype in ("float32", "bfloat16")
]
