# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge bench`` computes, and what is right: Mixtral's block, Qwen3's, and decoding."""

import dataclasses

import torch
from reference import moe, widened

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
        # Three roundings to the dtype, of which the largest of millions is compared.
        tolerance=0.04,
        size=size,
        family=dtype if size else "",
    )


def scaled(tokens, experts, top, width, inner):
    """The same with weights of 8 bits and a factor for each block of 128 by 128."""
    plain = forward(tokens, experts, top, width, inner)
    x, logits, w1, w2, _ = plain.inputs
    factors = [
        Tensor(shape=(experts, -(-w.shape[1] // 128), -(-w.shape[2] // 128)), dtype="float32")
        for w in (w1, w2)
    ]
    hit = experts * (1 - (1 - top / experts) ** tokens)
    return dataclasses.replace(
        plain,
        name=f"{tokens} tokens, {top} of {experts}, {width} x {inner} float8",
        inputs=(
            x,
            logits,
            *(dataclasses.replace(w, dtype="float8_e4m3fn") for w in (w1, w2)),
            top,
            *factors,
        ),
        reference=lambda x, logits, w1, w2, top, *factors: moe(
            x.double(),
            logits.double(),
            *(widened(w, s, torch.float64) for w, s in zip((w1, w2), factors, strict=True)),
            top,
        ),
        bytes=plain.bytes - int(3 * hit * width * inner),
    )


def sized(tokens):
    return [
        forward(tokens, 8, 2, 128, 64, dtype=dtype, size=tokens)
        for dtype in ("bfloat16", "float16")
    ]


WORKLOADS = [
    forward(4096, 8, 2, 4096, 14336),
    forward(4096, 128, 8, 2048, 768),
    forward(16, 128, 8, 2048, 768),
    scaled(16, 128, 8, 2048, 768),
    scaled(4096, 128, 8, 2048, 768),
    forward(1, 128, 8, 2048, 768),
    forward(256, 128, 8, 2048, 768),
]
