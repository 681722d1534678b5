// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind relu_scale.h.

#include "../relu_scale.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::DType;
using kernforge::laid_out_as;
using kernforge::same_strides;
using kernforge::Tensor;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("relu_scale: " + why); }

DType dtype_of(const Tensor& x) { return kernforge::dtype_of(x, "relu_scale: x"); }

void check_gradient(const Tensor& dy, const Tensor& x) {
  kernforge::check_dtype(dy, x.scalar_type(), "relu_scale", "grad", "x");
  kernforge::check_shape(dy, x, "relu_scale", "grad", "x");
  kernforge::check_device(dy, x, "relu_scale", "grad", "x");
}

// What the device does with dense memory of one layout.
#if defined(CUDA_KERNEL)

void run_forward(DType dtype, const Tensor& x, const Tensor& y, double alpha) {
  kernforge::on_device_of(x, "relu_scale", [&](cudaStream_t stream) {
    return relu_scale::forward_launch(dtype, x.const_data_ptr(), y.mutable_data_ptr(), alpha,
                                      x.numel(), stream);
  });
}

void run_backward(DType dtype, const Tensor& dy, const Tensor& x, const Tensor& dx, double alpha) {
  kernforge::on_device_of(x, "relu_scale", [&](cudaStream_t stream) {
    return relu_scale::backward_launch(dtype, dy.const_data_ptr(), x.const_data_ptr(),
                                       dx.mutable_data_ptr(), alpha, x.numel(), stream);
  });
}

#else

constexpr int64_t kGrain = 1 << 15;  // elements: some 10 us of one core, over a thread's start

void run_forward(DType dtype, const Tensor& x, const Tensor& y, double alpha) {
  torch::stable::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    relu_scale::forward_cpu(dtype, kernforge::element(x, begin),
                            kernforge::mutable_element(y, begin), alpha, end - begin);
  });
}

void run_backward(DType dtype, const Tensor& dy, const Tensor& x, const Tensor& dx, double alpha) {
  torch::stable::parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
    relu_scale::backward_cpu(dtype, kernforge::element(dy, begin), kernforge::element(x, begin),
                             kernforge::mutable_element(dx, begin), alpha, end - begin);
  });
}

#endif

Tensor forward(const Tensor& x, double alpha) {
  const DType dtype = dtype_of(x);
  Tensor y = kernforge::new_like(x);
  if (same_strides(x, y)) {
    run_forward(dtype, x, y, alpha);
  } else {
    torch::stable::copy_(y, x);
    run_forward(dtype, y, y, alpha);
  }
  return y;
}

void forward_inplace(const Tensor& x, double alpha) {
  const DType dtype = dtype_of(x);
  if (x.is_contiguous()) return run_forward(dtype, x, x, alpha);
  for (int64_t i = 0; i < x.dim(); ++i) {
    if (x.stride(i) == 0 && x.size(i) > 1) {
      refuse("x cannot be written in place, its elements share memory: stride 0 in dimension " +
             std::to_string(i));
    }
  }
  Tensor y = forward(x, alpha);
  Tensor to = x;
  torch::stable::copy_(to, y);
}

Tensor backward(const Tensor& dy, const Tensor& x, double alpha) {
  const DType dtype = dtype_of(x);
  check_gradient(dy, x);
  Tensor dx = kernforge::new_like(x);
  run_backward(dtype, laid_out_as(dx, dy), laid_out_as(dx, x), dx, alpha);
  return dx;
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("relu_scale(Tensor x, float alpha) -> Tensor");
  ops.def("relu_scale_(Tensor(a!) x, float alpha) -> ()");
  ops.def("relu_scale_backward(Tensor grad, Tensor x, float alpha) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("relu_scale", TORCH_BOX(&forward));
  ops.impl("relu_scale_", TORCH_BOX(&forward_inplace));
  ops.impl("relu_scale_backward", TORCH_BOX(&backward));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
