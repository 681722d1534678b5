# SPDX-License-Identifier: Apache-2.0
"""Small real models whose layers kernels may stand in for: an MLP and a Llama-style block."""

import torch
from torch import nn
from torch.nn import functional

from kernforge import use_kernel_forward_from_hub, use_kernelized_func


@use_kernel_forward_from_hub("RMSNorm")
class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(1 + torch.rand(width))
        self.epsilon = 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon) * self.weight


@use_kernel_forward_from_hub("SiluAndMul")
class SwiGLU(nn.Module):
    def forward(self, x):
        gate, up = x.chunk(2, dim=-1)
        return functional.silu(gate) * up


@use_kernel_forward_from_hub("swiglu")
def swiglu(x):
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


@use_kernelized_func(swiglu)
class FunctionMLP(nn.Module):
    """Calls a function that may be replaced, where MLP holds a layer."""

    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(swiglu(self.up(x)))


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.act = SwiGLU()

    def forward(self, x):
        return self.down(self.act(self.up(x)))


def rotated(x):
    """Rotary position embedding of [batch, heads, length, size]."""
    length, size = x.shape[-2:]
    frequency = 10000 ** (-torch.arange(0, size, 2, device=x.device) / size)
    angle = torch.outer(torch.arange(length, device=x.device), frequency).repeat(1, 2)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat((-second, first), dim=-1) * angle.sin()


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        split = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.attention, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


def llama(*, width=32, heads=4, layers=2):
    """A Llama-style stack of blocks; its input is [batch, length, width]."""
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width, heads) for _ in range(layers)), Norm(width))
