# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: one tensor of any size, in two types."""

from reference import gelu_approx

from kernforge import Tensor, Workload


def sized(elements):
    return [
        Workload(
            name=f"{dtype} {elements}",
            inputs=(Tensor(shape=(elements,), dtype=dtype),),
            reference=gelu_approx,
            size=elements,
            family=dtype,
        )
        for dtype in ("float32", "bfloat16")
    ]


WORKLOADS = [each for power in (10, 16, 22, 26) for each in sized(1 << power)]
