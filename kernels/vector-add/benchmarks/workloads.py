# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: two vectors of any size, in two types."""

from reference import vector_add

from kernforge import Tensor, Workload


def sized(elements):
    return [
        Workload(
            name=f"{dtype} {elements}",
            inputs=(Tensor(shape=(elements,), dtype=dtype), Tensor(shape=(elements,), dtype=dtype)),
            reference=vector_add,
            size=elements,
            family=dtype,
        )
        for dtype in ("float32", "bfloat16")
    ]


WORKLOADS = [each for power in (10, 16, 22, 26) for each in sized(1 << power)]
