# SPDX-License-Identifier: Apache-2.0
"""Small kernel projects that tests build for real."""

import os
import subprocess
from pathlib import Path

from support import trees

MANIFEST = """
[general]
name = "times-two"
version = 1
edition = 5
license = "Apache-2.0"
backends = [{backends}]

[torch]
src = ["torch-ext/torch_binding.cpp"]
{abi}
"""
CPU = """
[kernel.cpu]
backend = "cpu"
depends = []
src = ["times_two.cpp", "times_two.h"]
"""
CUDA = """
[kernel.cuda]
backend = "cuda"
depends = []
src = ["times_two.cu", "times_two.h"]
cuda-capabilities = ["9.0"]
"""
HEADER = """#pragma once
#include <cstdint>
void times_two_cpu(const float* x, float* y, int64_t n);
int times_two_cuda(const float* x, float* y, int64_t n, void* stream);
"""
CPP = """#include "times_two.h"
void times_two_cpu(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = 2 * x[i];
}
"""
CU = """#include "times_two.h"
__global__ void times_two_kernel(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
int times_two_cuda(const float* x, float* y, int64_t n, void* stream) {
  times_two_kernel<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, y, n);
  return cudaGetLastError();
}
"""
STABLE_BINDING = """#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include "../times_two.h"
#include "registration.h"

using torch::stable::Tensor;

Tensor times_two(const Tensor& x) {
  Tensor y = torch::stable::empty_like(x);
  const auto* in = static_cast<const float*>(x.data_ptr());
  auto* out = static_cast<float*>(y.data_ptr());
#ifdef CPU_KERNEL
  times_two_cpu(in, out, x.numel());
#else
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream));
  STD_TORCH_CHECK(times_two_cuda(in, out, x.numel(), stream) == 0, "launch failed");
#endif
  return y;
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("times_two(Tensor x) -> Tensor"); }
#ifdef CPU_KERNEL
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#else
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#endif
  ops.impl("times_two", TORCH_BOX(&times_two));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
FULL_BINDING = """#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>
#ifdef CUDA_KERNEL
#include <ATen/cuda/CUDAContext.h>
#endif

#include "../times_two.h"
#include "registration.h"

at::Tensor times_two(const at::Tensor& x) {
  at::Tensor y = at::empty_like(x);
#ifdef CUDA_KERNEL
  times_two_cuda(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(),
                 at::cuda::getCurrentCUDAStream());
#else
  times_two_cpu(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
#endif
  return y;
}

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("times_two(Tensor x) -> Tensor"); }
#ifdef CUDA_KERNEL
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#else
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#endif
  ops.impl("times_two", &times_two);
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
PACKAGE = """from ._ops import ops


def times_two(x):
    return ops.times_two(x)
"""

TOY = """\
[general]
name = "toy"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[torch-noarch]
"""


def git(root: Path, *arguments: str) -> str:
    """What git prints in a directory, for an author and without anybody's configuration."""
    env = {"PATH": os.environ["PATH"], "HOME": str(root), "GIT_CONFIG_GLOBAL": "/dev/null"}
    argv = ["git", "-c", "user.name=x", "-c", "user.email=x@example", *arguments]
    done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write_toy(root: Path) -> Path:
    """Write a project without machine code."""
    return trees.write(root, {"build.toml": TOY, "torch-ext/toy/__init__.py": "ANSWER = 42\n"})


def write(
    root: Path, *, backends: tuple[str, ...] = ("cpu",), stable: bool = True, **replaced: str
) -> Path:
    """Write a project; ``replaced`` gives other text for ``cpp``, ``cu`` or ``binding``."""
    text = MANIFEST.format(
        backends=", ".join(f'"{b}"' for b in backends),
        abi='stable-abi = "2.10"' if stable else "",
    )
    text += (CPU if "cpu" in backends else "") + (CUDA if "cuda" in backends else "")
    binding = STABLE_BINDING if stable else FULL_BINDING
    files = {
        "build.toml": text,
        "times_two.h": HEADER,
        "times_two.cpp": replaced.get("cpp", CPP),
        "times_two.cu": replaced.get("cu", CU),
        "torch-ext/torch_binding.cpp": replaced.get("binding", binding),
        "torch-ext/times_two/__init__.py": PACKAGE,
    }
    return trees.write(root, files)
