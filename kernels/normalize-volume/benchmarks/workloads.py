# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: volumes of three sizes."""

from reference import normalize_volume

from kernforge import Tensor, Workload

WORKLOADS = [
    Workload(
        name="x".join(map(str, shape)),
        inputs=(Tensor(shape=shape, dtype="uint16"),),
        reference=normalize_volume,
        outputs=("float32",),
    )
    for shape in ((16, 32, 32), (64, 256, 256), (512, 512, 512))
]
