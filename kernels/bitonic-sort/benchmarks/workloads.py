# SPDX-License-Identifier: Apache-2.0
"""Workloads of ``kernforge bench`` with references: rows of each path, the greatest of some.

The bytes of a sort are its elements, read and written once, and their indices of 8 bytes.
"""

from reference import sort, topk

from kernforge import Tensor, Workload


def in_order(rows, length, dtype="float32", *, size=0):
    return Workload(
        name=f"sort {rows} x {length} {dtype}",
        inputs=(Tensor(shape=(rows, length), dtype=dtype),),
        reference=sort,
        outputs=(dtype, "int64"),
        flops=0,
        size=size,
        family=f"sort {dtype}" if size else "",
    )


def greatest(rows, length, k, dtype="float32"):
    """Without indices: of equal elements, any may be taken."""
    return Workload(
        name=f"topk {k} of {rows} x {length} {dtype}",
        inputs=(Tensor(shape=(rows, length), dtype=dtype), k),
        reference=lambda x, k: topk(x, k)[0],
        flops=0,
    )


def sized(elements):
    """Rows of 1,024, and shorter ones."""
    return [
        in_order(max(elements // length, 1), length, dtype, size=elements)
        for length, dtype in ((1024, "float32"), (128, "bfloat16"))
    ]


WORKLOADS = [
    in_order(16384, 1024),
    in_order(65536, 128),
    in_order(4096, 4096),
    in_order(1024, 16384),
    in_order(16384, 1024, "bfloat16"),
    in_order(4096, 4096, "int32"),
    in_order(16, 1 << 20),
    greatest(256, 131072, 50),
    greatest(16384, 1024, 32),
]
