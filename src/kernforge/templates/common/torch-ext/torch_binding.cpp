// SPDX-License-Identifier: __LICENSE__
//
// The op as torch sees it: checks, allocation, stream, registration. On torch's stable ABI, so one
// build serves every torch from 2.10 on. A build defines CPU_KERNEL or CUDA_KERNEL.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "../__PYTHON_NAME__.h"
#include "registration.h"

namespace {

using __PYTHON_NAME___kernel::DType;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Becomes a ValueError in Python.
[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("__PYTHON_NAME__: " + why);
}

DType dtype_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    default:
      refuse(std::string("x must be float32, float16 or bfloat16, got ") +
             torch::headeronly::toString(x.scalar_type()));
  }
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 15;  // elements: well over the cost of starting a thread

Tensor __PYTHON_NAME___cpu(const Tensor& x, double scale) {
  const DType dtype = dtype_of(x);
  const Tensor from = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(from);
  const void* in = from.const_data_ptr();
  void* out = y.mutable_data_ptr();
  torch::stable::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    __PYTHON_NAME___kernel::run_cpu(in, out, static_cast<float>(scale), dtype, begin, end);
  });
  return y;
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("__PYTHON_NAME__", TORCH_BOX(&__PYTHON_NAME___cpu));
}

#endif

#if defined(CUDA_KERNEL)

Tensor __PYTHON_NAME___cuda(const Tensor& x, double scale) {
  const DType dtype = dtype_of(x);
  const int32_t device = x.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  const Tensor from = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(from);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  const cudaError_t error = __PYTHON_NAME___kernel::launch(
      from.const_data_ptr(), y.mutable_data_ptr(), static_cast<float>(scale), dtype, x.numel(),
      static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    throw std::runtime_error("__PYTHON_NAME__: CUDA error on cuda:" + std::to_string(device) +
                             ": " + cudaGetErrorString(error));
  }
  return y;
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("__PYTHON_NAME__", TORCH_BOX(&__PYTHON_NAME___cuda));
}

#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("__PYTHON_NAME__(Tensor x, float scale) -> Tensor");
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
