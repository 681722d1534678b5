# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: rows of transformers, forward and backward.

A gradient is measured by itself: the statistics that the forward call keeps are an input.
"""

from reference import layer_norm, rms_norm

from kernforge import Tensor, Workload

SIZES = {"bfloat16": 2, "float32": 4}
EPS = 1e-5


def _forward(what, x, *given):
    if what == "add rms":
        x, given = x + given[0], given[1:]  # rounded, as the sum is
        return rms_norm(x.double(), given[0].double(), EPS), x
    norm = layer_norm if what == "layer" else rms_norm
    return norm(x.double(), *(t.double() for t in given), EPS)


def _backward(what, dy, x, statistics, weight, *_):
    dy, x, statistics, weight = (t.double() for t in (dy, x, statistics, weight))
    normal = x * statistics[-1, :, None]
    if what == "layer backward":
        normal = (x - statistics[0, :, None]) * statistics[1, :, None]
    g = dy * weight
    dx = g - normal * (g * normal).mean(-1, keepdim=True)
    if what == "layer backward":
        dx = dx - g.mean(-1, keepdim=True)
    sums = [(dy * normal).sum(0), dy.sum(0)] if what == "layer backward" else [(dy * normal).sum(0)]
    return (dx * statistics[-1, :, None], *sums)


def forward(what, rows, width, dtype, *, size=0):
    matrix, row = Tensor(shape=(rows, width), dtype=dtype), Tensor(shape=(width,), dtype=dtype)
    tensors = {"layer": (matrix, row, row), "rms": (matrix, row), "add rms": (matrix, matrix, row)}
    given = tensors[what]
    results = 2 if what == "add rms" else 1
    return Workload(
        name=f"{what} {rows} x {width} {dtype}",
        inputs=(what, *given),
        reference=_forward,
        outputs=(dtype,) * results,
        bytes=sum(each.nbytes for each in given) + results * matrix.nbytes,
        flops=0,
        size=size,
        family=f"{what} {dtype}" if size else "",
    )


def backward(what, rows, width, dtype):
    matrix, row = Tensor(shape=(rows, width), dtype=dtype), Tensor(shape=(width,), dtype=dtype)
    layer = what == "layer backward"
    statistics = Tensor(shape=(2 if layer else 1, rows), low=0.5, high=1.5)
    given = (matrix, matrix, statistics, row, *([row] if layer else []))
    return Workload(
        name=f"{what} {rows} x {width} {dtype}",
        inputs=(what, *given),
        reference=_backward,
        outputs=(dtype,) * (3 if layer else 2),
        bytes=sum(each.nbytes for each in given) + matrix.nbytes + row.nbytes,
        flops=0,
        tolerance=1e-4 if dtype == "float32" else None,  # sums over all rows
    )


def sized(elements):
    """Rows of 1024."""
    return [
        forward(what, max(elements // 1024, 1), 1024, dtype, size=elements)
        for what in ("layer", "rms")
        for dtype in SIZES
    ]


WORKLOADS = [
    forward("layer", 8192, 4096, "bfloat16"),
    forward("rms", 8192, 4096, "bfloat16"),
    forward("add rms", 8192, 4096, "bfloat16"),
    backward("layer backward", 8192, 4096, "bfloat16"),
    backward("rms backward", 8192, 4096, "bfloat16"),
    forward("layer", 65536, 768, "bfloat16"),
    backward("layer backward", 65536, 768, "bfloat16"),
    forward("rms", 16, 4096, "bfloat16"),
    backward("layer backward", 32, 64, "float32"),
]
