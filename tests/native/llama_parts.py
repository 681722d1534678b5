# SPDX-License-Identifier: Apache-2.0
"""A kernel project with layers: two of a Llama block's parts, for the CPU."""

from pathlib import Path

MANIFEST = """
[general]
name = "llama-parts"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch]
src = ["torch-ext/torch_binding.cpp"]
stable-abi = "2.10"

[kernel.cpu]
backend = "cpu"
depends = []
src = ["llama_parts.cpp", "llama_parts.h"]
"""
HEADER = """#pragma once
#include <cstdint>
// x and grad_x are [rows, 2 * n], y and grad are [rows, n].
void silu_and_mul(const float* x, float* y, int64_t rows, int64_t n);
void silu_and_mul_backward(const float* grad, const float* x, float* grad_x, int64_t rows,
                           int64_t n);
// x and y are [rows, n], weight is [n].
void rms_norm(const float* x, const float* weight, float* y, int64_t rows, int64_t n,
              float epsilon);
"""
CPP = """#include "llama_parts.h"

#include <cmath>

void silu_and_mul(const float* x, float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row) {
    const float *gate = x + 2 * n * row, *up = gate + n;
    for (int64_t i = 0; i < n; ++i) y[row * n + i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
  }
}

void silu_and_mul_backward(const float* grad, const float* x, float* grad_x, int64_t rows,
                           int64_t n) {
  for (int64_t row = 0; row < rows; ++row) {
    const float *gate = x + 2 * n * row, *up = gate + n;
    for (int64_t i = 0; i < n; ++i) {
      const float s = 1.0f / (1.0f + expf(-gate[i])), g = grad[row * n + i];
      grad_x[2 * n * row + i] = g * up[i] * s * (1.0f + gate[i] * (1.0f - s));
      grad_x[2 * n * row + n + i] = g * gate[i] * s;
    }
  }
}

void rms_norm(const float* x, const float* weight, float* y, int64_t rows, int64_t n,
              float epsilon) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
    const float scale = 1.0f / sqrtf(sum / n + epsilon);
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
  }
}
"""
BINDING = """#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <vector>

#include "../llama_parts.h"
#include "registration.h"

using torch::stable::Tensor;

namespace {

Tensor checked(const Tensor& t) {
  STD_TORCH_CHECK(t.scalar_type() == torch::headeronly::ScalarType::Float, "float32 is needed");
  return torch::stable::contiguous(t);
}

const float* in(const Tensor& t) { return static_cast<const float*>(t.data_ptr()); }
float* out(const Tensor& t) { return static_cast<float*>(t.data_ptr()); }

Tensor silu_and_mul_op(const Tensor& given) {
  const Tensor x = checked(given);
  std::vector<int64_t> shape(x.sizes().begin(), x.sizes().end());
  const int64_t n = shape.back() /= 2;
  Tensor y = torch::stable::new_empty(x, shape);
  silu_and_mul(in(x), out(y), y.numel() / n, n);
  return y;
}

Tensor silu_and_mul_backward_op(const Tensor& given_grad, const Tensor& given) {
  const Tensor grad = checked(given_grad), x = checked(given);
  const int64_t n = x.size(x.dim() - 1) / 2;
  Tensor grad_x = torch::stable::empty_like(x);
  silu_and_mul_backward(in(grad), in(x), out(grad_x), grad.numel() / n, n);
  return grad_x;
}

Tensor rms_norm_op(const Tensor& given, const Tensor& given_weight, double epsilon) {
  const Tensor x = checked(given), weight = checked(given_weight);
  const int64_t n = weight.numel();
  Tensor y = torch::stable::empty_like(x);
  rms_norm(in(x), in(weight), out(y), x.numel() / n, n, static_cast<float>(epsilon));
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("silu_and_mul(Tensor x) -> Tensor");
  ops.def("silu_and_mul_backward(Tensor grad, Tensor x) -> Tensor");
  ops.def("rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("silu_and_mul", TORCH_BOX(&silu_and_mul_op));
  ops.impl("silu_and_mul_backward", TORCH_BOX(&silu_and_mul_backward_op));
  ops.impl("rms_norm", TORCH_BOX(&rms_norm_op));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
PACKAGE = """import torch

from . import layers
from ._ops import add_op_namespace_prefix, ops


@torch.library.register_fake(add_op_namespace_prefix("silu_and_mul"))
def _(x):
    return x.new_empty((*x.shape[:-1], x.shape[-1] // 2))


@torch.library.register_fake(add_op_namespace_prefix("silu_and_mul_backward"))
def _(grad, x):
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("rms_norm"))
def _(x, weight, epsilon):
    return torch.empty_like(x)


def _backward(ctx, grad):
    return ops.silu_and_mul_backward(grad, *ctx.saved_tensors)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


torch.library.register_autograd(
    add_op_namespace_prefix("silu_and_mul"), _backward, setup_context=_setup
)


def silu_and_mul(x):
    return ops.silu_and_mul(x)


silu_and_mul.can_torch_compile = True
"""
LAYERS = """import torch
from torch import nn

from ._ops import ops


class SiluAndMul(nn.Module):
    can_torch_compile = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.silu_and_mul(x)


class RMSNorm(nn.Module):
    can_torch_compile = True
    has_backward = False

    weight: torch.Tensor
    epsilon: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x, self.weight, self.epsilon)
"""


def write(root: Path) -> Path:
    """Write the project."""
    files = {
        "build.toml": MANIFEST,
        "llama_parts.h": HEADER,
        "llama_parts.cpp": CPP,
        "torch-ext/torch_binding.cpp": BINDING,
        "torch-ext/llama_parts/__init__.py": PACKAGE,
        "torch-ext/llama_parts/layers.py": LAYERS,
    }
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root
