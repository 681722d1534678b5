# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: pictures of four sizes."""

from math import prod

from cases import BENCH_CASES
from reference import img2gray

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name=str(case),
        inputs=(Tensor(shape=case.shape, dtype="uint8"),),
        reference=img2gray,
        size=prod(case.shape[:-1]),
        family="pixels",
    )
    for case in BENCH_CASES
]
