# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``kernforge bench`` with references: GELU and its gradient, in two dtypes."""

from reference import gelu_approx, gelu_approx_backward

from kernforge import Tensor, Workload


def forward(elements, dtype):
    return Workload(
        name=f"{dtype} {elements}",
        inputs=(Tensor(shape=(elements,), dtype=dtype),),
        reference=lambda x: gelu_approx(x.double()),
        size=elements,
        family=dtype,
    )


def backward(elements, dtype):
    given = Tensor(shape=(elements,), dtype=dtype)
    return Workload(
        name=f"gradient {dtype} {elements}",
        inputs=(given, given),
        reference=gelu_approx_backward,
        size=elements,
        family=f"gradient {dtype}",
    )


def sized(elements):
    return [make(elements, t) for make in (forward, backward) for t in ("float32", "bfloat16")]


WORKLOADS = [each for power in (10, 16, 22, 26) for each in sized(1 << power)]
