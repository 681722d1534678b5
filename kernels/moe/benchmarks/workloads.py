# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: Mixtral's block, Qwen3's, and decoding."""

from reference import moe

from kernforge import Tensor, Workload


def forward(tokens, experts, top, width, inner, *, dtype="bfloat16", size=0):
    """Bytes: each weight once, of the experts that a random choice hits, and what lies between."""
    hit = experts * (1 - (1 - top / experts) ** tokens)
    assigned = tokens * top
    return Workload(
        name=f"{tokens} tokens, {top} of {experts}, {width} x {inner} {dtype}",
        inputs=(
            Tensor(shape=(tokens, width), dtype=dtype),
            Tensor(shape=(tokens, experts), dtype="float32"),
            Tensor(shape=(experts, 2 * inner, width), dtype=dtype),
            Tensor(shape=(experts, width, inner), dtype=dtype),
            top,
        ),
        reference=lambda x, logits, w1, w2, top: moe(
            x.double(), logits.double(), w1.double(), w2.double(), top
        ),
        flops=6 * assigned * width * inner,
        bytes=int(2 * (3 * hit * width * inner + 2 * tokens * width)) + 4 * tokens * experts,
        tolerance=0.04,  # three roundings to the dtype, of which the largest of millions is compared
        size=size,
        family=dtype if size else "",
    )


def sized(tokens):
    return [
        forward(tokens, 8, 2, 128, 64, dtype=dtype, size=tokens)
        for dtype in ("bfloat16", "float16")
    ]


WORKLOADS = [
    forward(4096, 8, 2, 4096, 14336),
    forward(4096, 128, 8, 2048, 768),
    forward(256, 128, 8, 2048, 768),
    forward(16, 128, 8, 2048, 768),
    forward(1, 128, 8, 2048, 768),
]
