# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: large products, small ones, decoding."""

from reference import linear_gelu

from kernforge import Tensor, Workload

SIZES = {"bfloat16": 2, "float32": 4}


def forward(rows, depth, columns, dtype, *, size=0):
    return Workload(
        name=f"{rows} x {depth} -> {columns} {dtype}",
        inputs=(
            Tensor(shape=(rows, depth), dtype=dtype),
            Tensor(shape=(columns, depth), dtype=dtype),
            Tensor(shape=(columns,), dtype=dtype),
        ),
        reference=lambda *given: linear_gelu(*(t.double() for t in given)),
        flops=2 * rows * depth * columns,
        bytes=(rows * depth + columns * depth + columns + rows * columns) * SIZES[dtype],
        size=size,
        family=dtype if size else "",
    )


def sized(rows):
    return [forward(rows, 256, 512, dtype, size=rows) for dtype in SIZES]


WORKLOADS = [
    forward(8192, 4096, 16384, "bfloat16"),
    forward(4096, 8192, 8192, "bfloat16"),
    forward(2048, 4096, 4096, "bfloat16"),
    forward(32, 768, 3072, "bfloat16"),
    forward(32, 768, 3072, "float32"),
    forward(1, 8192, 8192, "bfloat16"),
    forward(16, 8192, 8192, "bfloat16"),
]
