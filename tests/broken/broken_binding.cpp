// SPDX-License-Identifier: Apache-2.0
//
// One op for all faults; two of them are in here.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "broken.h"

// Weak: the file loads where torch has no CUDA, too, so that a machine without a GPU can hold it.
#pragma weak aoti_torch_get_current_cuda_stream

namespace {

using broken::Fault;
using torch::stable::Tensor;

Tensor twice(const Tensor& x, int64_t number) {
  if (number < 0 || number >= static_cast<int64_t>(Fault::kCount)) {
    throw std::invalid_argument("broken: there is no fault " + std::to_string(number));
  }
  const auto fault = static_cast<Fault>(number);
  const int32_t own = x.get_device_index();
  int32_t device = own;
  std::optional<torch::stable::accelerator::DeviceGuard> guard;
  if (fault == Fault::kNoDeviceGuard) {
    device = torch::stable::accelerator::getCurrentDeviceIndex();
  } else {
    guard.emplace(own);
  }
  const Tensor from = torch::stable::contiguous(x);
  Tensor y = torch::stable::empty_like(from);
  const Tensor& read = fault == Fault::kIgnoredStride ? x : from;
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  const cudaError_t error = broken::launch(fault, static_cast<const float*>(read.const_data_ptr()),
                                           static_cast<float*>(y.mutable_data_ptr()), x.numel(),
                                           static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    throw std::runtime_error("broken: " + std::string(cudaGetErrorString(error)));
  }
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY(broken_cuda, ops) { ops.def("twice(Tensor x, int fault) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(broken_cuda, CUDA, ops) { ops.impl("twice", TORCH_BOX(&twice)); }
