// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind gelu_approx.h.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../gelu_approx.h"
#include "registration.h"

namespace {

using gelu_approx::Type;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Becomes a ValueError in Python.
[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("gelu_approx: " + why);
}

std::string shape_of(const Tensor& t) {
  std::string text = "[";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "]";
}

std::string device_of(const Tensor& t) {
  if (t.is_cpu()) return "cpu";
  if (t.is_cuda()) return "cuda:" + std::to_string(t.get_device_index());
  return "device type " + std::to_string(static_cast<int>(t.device().type()));
}

std::string dtype_of(const Tensor& t) { return torch::headeronly::toString(t.scalar_type()); }

Type type_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return Type::kFloat;
    case ScalarType::Half:
      return Type::kHalf;
    case ScalarType::BFloat16:
      return Type::kBfloat16;
    case ScalarType::Double:
      return Type::kDouble;
    default:
      refuse("x must be float32, float16, bfloat16 or float64, got " + dtype_of(t));
  }
}

void check_gradient(const Tensor& dy, const Tensor& x) {
  if (dy.scalar_type() != x.scalar_type()) {
    refuse("grad must be " + dtype_of(x) + " like x, got " + dtype_of(dy));
  }
  bool same = dy.dim() == x.dim();
  for (int64_t i = 0; same && i < x.dim(); ++i) same = dy.size(i) == x.size(i);
  if (!same) refuse("grad must have the shape of x " + shape_of(x) + ", got " + shape_of(dy));
  if (dy.device() != x.device()) {
    refuse("grad must be on " + device_of(x) + " like x, got " + device_of(dy));
  }
}

bool same_strides(const Tensor& a, const Tensor& b) {
  const auto of_a = a.strides(), of_b = b.strides();
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(), of_b.end());
}

// Memory for a result: the strides of x where it is dense, else as torch's own operators choose.
// A contiguous one by the C interface: the dispatcher would cost 1 us more a call.
Tensor memory_like(const Tensor& x) {
  if (!x.is_contiguous()) return torch::stable::empty_like(x);
  int32_t dtype = 0, device = 0;
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(x.get(), &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(x.dim(), x.sizes().data(), x.strides().data(),
                                                  dtype, device, x.get_device_index(), &out));
  return Tensor(out);
}

// The same values in memory like that of `like`.
Tensor laid_out_as(const Tensor& like, const Tensor& from) {
  Tensor to = memory_like(like);
  torch::stable::copy_(to, from);
  return to;
}

// What a device does with dense memory of one layout.
using Forward = void (*)(const Tensor& x, const Tensor& y);
using Backward = void (*)(const Tensor& dy, const Tensor& x, const Tensor& dx);

template <Forward run>
Tensor forward(const Tensor& x) {
  type_of(x);
  Tensor y = memory_like(x);
  if (same_strides(x, y)) {
    run(x, y);
  } else {
    torch::stable::copy_(y, x);
    run(y, y);
  }
  return y;
}

template <Backward run>
Tensor backward(const Tensor& dy, const Tensor& x) {
  type_of(x);
  check_gradient(dy, x);
  Tensor dx = memory_like(x);
  const bool direct = same_strides(x, dx);
  if (direct && same_strides(dy, dx)) {
    run(dy, x, dx);
  } else {
    run(laid_out_as(x, dy), direct ? x : laid_out_as(x, x), dx);
  }
  return dx;
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 15;  // elements: some 10 us of one core, over a thread's start

const char* at(const Tensor& t, int64_t i) {
  return static_cast<const char*>(t.const_data_ptr()) + i * t.element_size();
}

void forward_on_cpu(const Tensor& x, const Tensor& y) {
  const Type type = type_of(x);
  const int64_t n = x.numel();
  auto* to = static_cast<char*>(y.mutable_data_ptr());
  const int64_t bytes = y.element_size();
  torch::stable::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    gelu_approx::forward_cpu(type, at(x, begin), to + begin * bytes, end - begin);
  });
}

void backward_on_cpu(const Tensor& dy, const Tensor& x, const Tensor& dx) {
  const Type type = type_of(x);
  const int64_t n = x.numel();
  auto* to = static_cast<char*>(dx.mutable_data_ptr());
  const int64_t bytes = dx.element_size();
  torch::stable::parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    gelu_approx::backward_cpu(type, at(dy, begin), at(x, begin), to + begin * bytes, end - begin);
  });
}

#endif

#if defined(CUDA_KERNEL)

void check_cuda(cudaError_t error, const Tensor& x) {
  if (error == cudaSuccess) return;
  throw std::runtime_error("gelu_approx: CUDA error on " + device_of(x) + ": " +
                           cudaGetErrorString(error));
}

// Makes the device of x current, where it is not, and gives its stream to `launch`.
template <class Launch>
void on_device_of(const Tensor& x, const Launch& launch) {
  const int32_t device = x.get_device_index();
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  if (torch::stable::accelerator::getCurrentDeviceIndex() == device) {
    return check_cuda(launch(static_cast<cudaStream_t>(stream)), x);
  }
  const torch::stable::accelerator::DeviceGuard guard(device);
  check_cuda(launch(static_cast<cudaStream_t>(stream)), x);
}

void forward_on_cuda(const Tensor& x, const Tensor& y) {
  on_device_of(x, [&](cudaStream_t stream) {
    return gelu_approx::forward_launch(type_of(x), x.const_data_ptr(), y.mutable_data_ptr(),
                                       x.numel(), stream);
  });
}

void backward_on_cuda(const Tensor& dy, const Tensor& x, const Tensor& dx) {
  on_device_of(x, [&](cudaStream_t stream) {
    return gelu_approx::backward_launch(type_of(x), dy.const_data_ptr(), x.const_data_ptr(),
                                        dx.mutable_data_ptr(), x.numel(), stream);
  });
}

#endif

// A build holds one backend; the other device gets a sentence instead of the dispatcher's table.
#if !defined(CPU_KERNEL) || !defined(CUDA_KERNEL)

#if defined(CUDA_KERNEL)
constexpr const char* kBuiltFor = "cuda";
#else
constexpr const char* kBuiltFor = "cpu";
#endif

[[noreturn]] void refuse_device(const Tensor& x) {
  refuse("x is on " + device_of(x) + ", this build runs on " + kBuiltFor);
}

Tensor forward_elsewhere(const Tensor& x) { refuse_device(x); }
Tensor backward_elsewhere(const Tensor&, const Tensor& x) { refuse_device(x); }

#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gelu_approx(Tensor x) -> Tensor");
  ops.def("gelu_approx_backward(Tensor grad, Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#if defined(CPU_KERNEL)
  ops.impl("gelu_approx", TORCH_BOX(&forward<forward_on_cpu>));
  ops.impl("gelu_approx_backward", TORCH_BOX(&backward<backward_on_cpu>));
#else
  ops.impl("gelu_approx", TORCH_BOX(&forward_elsewhere));
  ops.impl("gelu_approx_backward", TORCH_BOX(&backward_elsewhere));
#endif
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#if defined(CUDA_KERNEL)
  ops.impl("gelu_approx", TORCH_BOX(&forward<forward_on_cuda>));
  ops.impl("gelu_approx_backward", TORCH_BOX(&backward<backward_on_cuda>));
#else
  ops.impl("gelu_approx", TORCH_BOX(&forward_elsewhere));
  ops.impl("gelu_approx_backward", TORCH_BOX(&backward_elsewhere));
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
