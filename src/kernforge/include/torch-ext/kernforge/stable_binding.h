// SPDX-License-Identifier: Apache-2.0
//
// Helpers of a binding on torch's stable ABI (torch 2.10): tensors in words, results, the stream.

#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "binding.h"
#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL)
#include <cuda_runtime_api.h>
#endif

namespace kernforge {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Becomes a ValueError in Python.
[[noreturn]] inline void value_error(const std::string& text) { throw std::invalid_argument(text); }

inline std::string shape_of(const Tensor& t) {
  std::string text = "[";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "]";
}

inline std::string device_of(const Tensor& t) {
  if (t.is_cpu()) return "cpu";
  if (t.is_cuda()) return "cuda:" + std::to_string(t.get_device_index());
  return "device type " + std::to_string(static_cast<int>(t.device().type()));
}

inline std::string name_of(ScalarType type) { return torch::headeronly::toString(type); }

// The dtype of a tensor of floating-point numbers; `what` begins the message, as in "my_op: x".
inline DType dtype_of(const Tensor& t, const char* what) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Double:
      return DType::kFloat64;
    default:
      value_error(std::string(what) + " must be float32, float16, bfloat16 or float64, got " +
                  name_of(t.scalar_type()));
  }
}

// Checks of an argument `name` of an operator `op` beside its argument `like_name`; each raises a
// ValueError that says what it must be and what it is.
inline void check_device(const Tensor& t, const Tensor& like, const char* op, const char* name,
                         const char* like_name) {
  if (t.device() != like.device()) {
    value_error(std::string(op) + ": " + name + " must be on " + device_of(like) + " like " +
                like_name + ", got " + device_of(t));
  }
}

inline void check_dtype(const Tensor& t, ScalarType type, const char* op, const char* name,
                        const char* like_name = nullptr) {
  if (t.scalar_type() != type) {
    value_error(std::string(op) + ": " + name + " must be " + name_of(type) +
                (like_name ? std::string(" like ") + like_name : "") + ", got " +
                name_of(t.scalar_type()));
  }
}

inline void check_shape(const Tensor& t, const Tensor& like, const char* op, const char* name,
                        const char* like_name) {
  const auto a = t.sizes(), b = like.sizes();
  if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) {
    value_error(std::string(op) + ": " + name + " must have the shape of " + like_name + " " +
                shape_of(like) + ", got " + shape_of(t));
  }
}

inline bool same_strides(const Tensor& a, const Tensor& b) {
  const auto of_a = a.strides(), of_b = b.strides();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

// New memory on the device of `like`, by the C interface: the dispatcher costs 1 us more a call.
inline Tensor new_strided(const Tensor& like, const int64_t* sizes, const int64_t* strides,
                          int64_t dims, int32_t dtype) {
  int32_t device = 0;
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device));
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(dims, sizes, strides, dtype, device, like.get_device_index(), &out));
  return Tensor(out);
}

inline int32_t code_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte:
      return aoti_torch_dtype_uint8();
    case ScalarType::Half:
      return aoti_torch_dtype_float16();
    case ScalarType::BFloat16:
      return aoti_torch_dtype_bfloat16();
    case ScalarType::Float:
      return aoti_torch_dtype_float32();
    case ScalarType::Double:
      return aoti_torch_dtype_float64();
    default:
      value_error("no tensor of " + name_of(type) + " is made here");
  }
}

// A contiguous result; `dims` is at most 64, as everywhere in torch.
inline Tensor new_contiguous(const Tensor& like, const int64_t* sizes, int64_t dims,
                             ScalarType type) {
  int64_t strides[64], stride = 1;
  for (int64_t i = dims - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return new_strided(like, sizes, strides, dims, code_of(type));
}

// A result like x: its strides where it is contiguous, else as torch's own operators choose.
inline Tensor new_like(const Tensor& x) {
  if (!x.is_contiguous()) return torch::stable::empty_like(x);
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  return new_strided(x, x.sizes().data(), x.strides().data(), x.dim(), dtype);
}

// from, or a copy in memory like that of `like`.
inline Tensor laid_out_as(const Tensor& like, const Tensor& from) {
  if (same_strides(like, from)) return from;
  Tensor to = new_like(like);
  torch::stable::copy_(to, from);
  return to;
}

// t, or a copy without gaps.
inline Tensor packed(const Tensor& t) {
  return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

// Elements from one row to the next, where all leading dimensions of t are one; -1 where not.
inline int64_t row_stride(const Tensor& t) {
  const int64_t last = t.dim() - 1, depth = t.size(last);
  if (depth > 1 && t.stride(last) != 1) return -1;
  int64_t stride = -1, next = 0;  // of the innermost leading dimension, and of the one outside it
  for (int64_t i = last - 1; i >= 0; --i) {
    if (t.size(i) == 1) continue;
    if (stride < 0) {
      stride = t.stride(i);
    } else if (t.stride(i) != next) {
      return -1;
    }
    next = t.stride(i) * t.size(i);
  }
  return stride < 0 ? depth : stride;
}

// The address of element i of memory without gaps.
inline const char* element(const Tensor& t, int64_t i) {
  return static_cast<const char*>(t.const_data_ptr()) + i * t.element_size();
}
inline char* mutable_element(const Tensor& t, int64_t i) {
  return static_cast<char*>(t.mutable_data_ptr()) + i * t.element_size();
}

#if defined(CUDA_KERNEL)

// Makes the device of t current, where it is not, and calls launch(stream), which returns a
// cudaError_t; `op` begins the message of a failure.
template <class Launch>
void on_device_of(const Tensor& t, const char* op, const Launch& launch) {
  const auto check = [&](cudaError_t error) {
    if (error == cudaSuccess) return;
    throw std::runtime_error(std::string(op) + ": CUDA error on " + device_of(t) + ": " +
                             cudaGetErrorString(error));
  };
  const int32_t device = t.get_device_index();
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  if (torch::stable::accelerator::getCurrentDeviceIndex() == device) {
    return check(launch(static_cast<cudaStream_t>(stream)));
  }
  const torch::stable::accelerator::DeviceGuard guard(device);
  check(launch(static_cast<cudaStream_t>(stream)));
}

#endif

}  // namespace kernforge

#include "elementwise_binding.h"  // last: it is made of what stands above
