# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: the sizes that cuBLAS is measured by."""

from reference import matmul

from kernforge import Tensor, Workload

SIZES = {"bfloat16": 2, "float16": 2, "float32": 4}


def product(rows, depth, columns, dtype, *, size=0):
    return Workload(
        name=f"{rows} x {depth} x {columns} {dtype}",
        inputs=(
            Tensor(shape=(rows, depth), dtype=dtype),
            Tensor(shape=(depth, columns), dtype=dtype),
        ),
        reference=lambda a, b: matmul(a.double(), b.double()),
        flops=2 * rows * depth * columns,
        bytes=(rows * depth + depth * columns + rows * columns) * SIZES[dtype],
        size=size,
        family=dtype if size else "",
    )


def sized(rows):
    return [product(rows, 256, 512, dtype, size=rows) for dtype in ("bfloat16", "float32")]


WORKLOADS = [
    product(8192, 8192, 8192, "bfloat16"),
    product(4096, 4096, 4096, "bfloat16"),
    product(2048, 4096, 4096, "bfloat16"),
    product(16384, 1024, 16384, "bfloat16"),
    product(512, 512, 512, "bfloat16"),
    product(4096, 4096, 4096, "float16"),
    product(2048, 2048, 2048, "float32"),
]
