# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: uint16 volumes of any size, to two types.

The volume counts twice where its mean and deviation are computed, also where it stays in the cache.
"""

from math import prod

from reference import normalize_volume

from kernforge import Tensor, Workload

MEAN, STD = 31234.5, 4321.25
BYTES = {"float32": 4, "bfloat16": 2}


def normalized(shape, dtype, *given):
    """One volume; ``given`` is its mean and deviation, or nothing."""
    kind = "given" if given else "computed"
    voxels = prod(shape)
    return Workload(
        name=f"{kind} {dtype} {'x'.join(map(str, shape))}",
        inputs=(Tensor(shape=shape, dtype="uint16", low=0, high=1 << 16), dtype, *given),
        reference=lambda volume, _dtype, *given: normalize_volume(volume, *given),
        outputs=(dtype,),
        bytes=voxels * (BYTES[dtype] + (2 if given else 4)),
        size=voxels,
        family=f"{kind} {dtype}",
    )


def of_shape(shape):
    return [normalized(shape, t, *given) for given in ((MEAN, STD), ()) for t in BYTES]


def sized(voxels):
    """Volumes ``[voxels / 1024, 32, 32]``."""
    return of_shape((voxels // 1024, 32, 32))


WORKLOADS = [
    each for shape in ((16, 32, 32), (64, 256, 256), (512, 512, 512)) for each in of_shape(shape)
]
