# SPDX-License-Identifier: Apache-2.0
"""A block of a transformer whose parts are torch's own functions or kernels of the collection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

NAMES = ("layer-norm", "matmul", "linear-gelu", "moe", "bitonic-sort")
EPS, WIDTH = 1e-6, 64


class Torch:
    """What the kernels compute, in torch's functions."""

    @staticmethod
    def rms_norm(x, weight):
        return functional.rms_norm(x, weight.shape, weight, EPS)

    @staticmethod
    def add_rms_norm(x, residual, weight):
        total = x + residual
        return functional.rms_norm(total, weight.shape, weight, EPS), total

    @staticmethod
    def linear(x, weight):
        return functional.linear(x, weight)

    @staticmethod
    def linear_gelu(x, weight, bias):
        return functional.gelu(functional.linear(x, weight, bias), approximate="tanh")

    @staticmethod
    def moe(x, logits, w1, w2, top_k):
        """By torch's grouped products in bfloat16 on capability 9.0, else by every expert."""
        weights, ids = logits.float().softmax(-1).topk(top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        if x.is_cuda and x.dtype is torch.bfloat16:
            return _grouped(x, weights, ids, w1, w2)
        gate, up = torch.einsum("td,ehd->teh", x, w1).chunk(2, -1)
        each = torch.einsum("teh,edh->ted", functional.silu(gate) * up, w2)
        share = torch.zeros_like(logits, dtype=weights.dtype).scatter(1, ids, weights)
        return torch.einsum("te,ted->td", share.to(x.dtype), each)

    @staticmethod
    def topk(x, k):
        return torch.topk(x, k, dim=-1)


def _grouped(x, weights, ids, w1, w2):
    tokens, top_k = ids.shape
    flat = ids.flatten()
    order = flat.argsort(stable=True)
    counts = torch.zeros(len(w1), dtype=torch.int64, device=x.device)
    ends = counts.scatter_add(0, flat, torch.ones_like(flat)).cumsum(0).to(torch.int32)
    both = torch._grouped_mm(x[order // top_k], w1.transpose(1, 2), offs=ends)
    gate, up = both.chunk(2, 1)
    inner = functional.silu(gate) * up
    out = torch._grouped_mm(inner, w2.transpose(1, 2), offs=ends)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    return (out[back].view(tokens, top_k, -1) * weights.unsqueeze(2)).sum(1).to(x.dtype)


def of_kernels(load: Any) -> SimpleNamespace:
    """The parts as calls of the collection's kernels.

    Args:
        load: gives the package of a kernel by its name.
    """
    norm, product, gelu, mixture, sort = (load(name) for name in NAMES)
    return SimpleNamespace(
        rms_norm=lambda x, weight: norm.rms_norm(x, weight.shape, weight, EPS),
        add_rms_norm=lambda x, other, weight: norm.add_rms_norm(
            x, other, weight.shape, weight, EPS
        ),
        linear=lambda x, weight: product.matmul(x, weight.t()),
        linear_gelu=gelu.linear_gelu,
        moe=mixture.moe,
        topk=sort.topk,
    )


class Block(nn.Module):
    """RMSNorm, attention, RMSNorm of the sum, MLP or mixture of experts, and their sum.

    Args:
        experts: of the mixture; 0 for a dense MLP of a linear layer, GELU and a linear layer.
        parts: ``Torch``, or what ``of_kernels`` gives.
    """

    def __init__(
        self, experts: int, parts: Any = Torch, *, width=WIDTH, heads=4, inner=96, top_k=2
    ) -> None:
        super().__init__()
        self.experts, self.parts, self.heads, self.top_k = experts, parts, heads, top_k
        shapes = {"first": (width,), "qkv": (3 * width, width), "out": (width, width)}
        shapes["second"] = (width,)
        if experts:
            shapes |= {"router": (experts, width)}
            shapes |= {"w1": (experts, 2 * inner, width), "w2": (experts, width, inner)}
        else:
            shapes |= {"up": (inner, width), "up_bias": (inner,), "down": (width, inner)}
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.draw()

    @torch.no_grad()
    def draw(self, seed: int = 0) -> None:
        """Weights with which all that is added has the size of 1."""
        source = torch.Generator(self.first.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.2
            parameter.normal_(0.0, 4 * spread if name == "router" else spread, generator=source)
            if name in {"first", "second"}:
                parameter.add_(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``[batch, length, width]`` to the same."""
        parts, (batch, length, width) = self.parts, x.shape
        rows = x.view(-1, width)
        qkv = parts.linear(parts.rms_norm(rows, self.first), self.qkv)
        q, k, v = qkv.view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = parts.linear(y.transpose(1, 2).reshape(-1, width), self.out)
        y, rows = parts.add_rms_norm(y, rows, self.second)
        if self.experts:
            logits = parts.linear(y, self.router)
            y = parts.moe(y, logits, self.w1, self.w2, self.top_k)
        else:
            y = parts.linear(parts.linear_gelu(y, self.up, self.up_bias), self.down)
        return (rows + y).view(x.shape)


class Decoder(nn.Module):
    """A dense block, one with experts, a norm, a head, and the ``k`` most likely tokens."""

    def __init__(self, parts: Any = Torch, *, words: int = 200, k: int = 5) -> None:
        super().__init__()
        self.parts, self.k = parts, k
        self.dense, self.sparse = Block(0, parts), Block(8, parts)
        self.head = nn.Parameter(torch.empty(words, WIDTH))
        self.norm = nn.Parameter(torch.ones(WIDTH))
        nn.init.normal_(self.head, std=0.125, generator=torch.Generator().manual_seed(1))

    def forward(
        self, x: torch.Tensor, chosen: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and tokens, by falling score, of all tokens or of the given ones."""
        parts = self.parts
        y = self.sparse(self.dense(x))
        y = parts.rms_norm(y.view(-1, y.shape[-1]), self.norm)
        scores = parts.linear(y, self.head)
        if chosen is not None:
            return scores.gather(1, chosen), chosen
        return tuple(parts.topk(scores, self.k))
