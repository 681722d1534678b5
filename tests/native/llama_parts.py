# SPDX-License-Identifier: Apache-2.0
"""A kernel project with layers: two of a Llama block's parts, as operators of Python."""

FILES = {
    "build.toml": """
[general]
name = "llama-parts"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
""",
    "torch-ext/llama_parts/_kernels.py": """import torch
from torch import Tensor
from torch.nn import functional

from ._ops import add_op_namespace_prefix


@torch.library.custom_op(add_op_namespace_prefix("silu_and_mul"), mutates_args=())
def silu_and_mul(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


@torch.library.custom_op(add_op_namespace_prefix("silu_and_mul_backward"), mutates_args=())
def silu_and_mul_backward(grad: Tensor, x: Tensor) -> Tensor:
    gate, up = x.chunk(2, dim=-1)
    s = gate.sigmoid()
    return torch.cat((grad * up * s * (1 + gate * (1 - s)), grad * gate * s), dim=-1)


@torch.library.custom_op(add_op_namespace_prefix("rms_norm"), mutates_args=())
def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, epsilon)


silu_and_mul.register_fake(lambda x: x.new_empty((*x.shape[:-1], x.shape[-1] // 2)))
silu_and_mul_backward.register_fake(lambda grad, x: torch.empty_like(x))
rms_norm.register_fake(lambda x, weight, epsilon: torch.empty_like(x))
silu_and_mul.register_autograd(
    lambda ctx, grad: silu_and_mul_backward(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
""",
    "torch-ext/llama_parts/__init__.py": """from . import _kernels, layers


def silu_and_mul(x):
    return _kernels.silu_and_mul(x)


silu_and_mul.can_torch_compile = True
""",
    "torch-ext/llama_parts/layers.py": """import torch
from torch import nn

from . import _kernels


class SiluAndMul(nn.Module):
    can_torch_compile = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _kernels.silu_and_mul(x)


class RMSNorm(nn.Module):
    can_torch_compile = True
    has_backward = False

    weight: torch.Tensor
    epsilon: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _kernels.rms_norm(x, self.weight, self.epsilon)
""",
}
