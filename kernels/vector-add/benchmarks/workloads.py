# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right."""

from reference import vector_add

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name=f"2^{power} {dtype}",
        inputs=tuple(Tensor(shape=(1 << power,), dtype=dtype) for _ in range(2)),
        reference=vector_add,
    )
    for dtype in ("float32", "bfloat16")
    for power in (10, 20, 26)
]
