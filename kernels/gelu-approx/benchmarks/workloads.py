# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right."""

from reference import gelu_approx

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name=f"2^{power} {dtype}",
        inputs=(Tensor(shape=(1 << power,), dtype=dtype),),
        reference=gelu_approx,
    )
    for dtype in ("float32", "bfloat16")
    for power in (10, 20, 26)
]
