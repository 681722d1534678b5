# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: the sizes that cuBLAS is measured by."""

from reference import matmul

from kernforge import Tensor, Workload

SIZES = {"bfloat16": 2, "float16": 2, "float32": 4}


def product(rows, depth, columns, dtype, *, bias=False, activation=None, residual=False, size=0):
    """With the options, all of them inputs: None where there is none."""
    options = [each for each in ("bias" * bias, activation, "residual" * residual) if each]
    numbers = rows * depth + depth * columns + rows * columns * (2 if residual else 1)
    return Workload(
        name=" ".join([f"{rows} x {depth} x {columns} {dtype}", ", ".join(options)]).strip(),
        inputs=(
            Tensor(shape=(rows, depth), dtype=dtype),
            Tensor(shape=(depth, columns), dtype=dtype),
            Tensor(shape=(columns,), dtype=dtype) if bias else None,
            activation,
            Tensor(shape=(rows, columns), dtype=dtype) if residual else None,
        ),
        reference=_exact,
        flops=2 * rows * depth * columns,
        bytes=(numbers + bias * columns) * SIZES[dtype],
        size=size,
        family=dtype if size else "",
    )


def _exact(a, b, bias, activation, residual):
    wide = [None if each is None else each.double() for each in (a, b, bias, residual)]
    return matmul(*wide[:3], activation, wide[3])


def sized(rows):
    return [product(rows, 256, 512, dtype, size=rows) for dtype in ("bfloat16", "float32")]


WORKLOADS = [
    product(8192, 8192, 8192, "bfloat16"),
    product(4096, 4096, 4096, "bfloat16"),
    product(2048, 4096, 4096, "bfloat16"),
    product(16384, 1024, 16384, "bfloat16"),
    product(4096, 4096, 4096, "bfloat16", bias=True),
    product(4096, 4096, 4096, "bfloat16", bias=True, activation="gelu_tanh", residual=True),
    product(4096, 4096, 4096, "float32"),
    product(512, 512, 512, "bfloat16"),
]
