// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind relu_scale.h.

#include "../relu_scale.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::DType;
using kernforge::Tensor;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("relu_scale: " + why); }

DType dtype_of(const Tensor& x) { return kernforge::dtype_of(x, "relu_scale: x"); }

void check_gradient(const Tensor& dy, const Tensor& x) {
  kernforge::check_dtype(dy, x.scalar_type(), "relu_scale", "grad", "x");
  kernforge::check_shape(dy, x, "relu_scale", "grad", "x");
  kernforge::check_device(dy, x, "relu_scale", "grad", "x");
}

#if defined(CUDA_KERNEL)

void run_forward(DType dtype, const Tensor& x, const Tensor& y, double alpha) {
  kernforge::launch_elementwise(
      "relu_scale", y,
      [&](const kernforge::Strides<1>* strides, cudaStream_t stream, const void* from) {
        return relu_scale::forward_launch(dtype, from, y.mutable_data_ptr(), alpha, y.numel(),
                                          stream, strides);
      },
      x);
}

void run_backward(DType dtype, const Tensor& grad, const Tensor& x, const Tensor& dx,
                  double alpha) {
  kernforge::launch_elementwise(
      "relu_scale", dx,
      [&](const kernforge::Strides<2>* strides, cudaStream_t stream, const void* dy,
          const void* from) {
        return relu_scale::backward_launch(dtype, dy, from, dx.mutable_data_ptr(), alpha,
                                           dx.numel(), stream, strides);
      },
      grad, x);
}

#else

constexpr int64_t kGrain = 1 << 15;  // elements: some 10 us of one core, over a thread's start

void run_forward(DType dtype, const Tensor& given, const Tensor& y, double alpha) {
  const Tensor x = kernforge::laid_out_as(y, given);
  torch::stable::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    relu_scale::forward_cpu(dtype, kernforge::element(x, begin),
                            kernforge::mutable_element(y, begin), alpha, end - begin);
  });
}

void run_backward(DType dtype, const Tensor& grad, const Tensor& of, const Tensor& dx,
                  double alpha) {
  const Tensor dy = kernforge::laid_out_as(dx, grad), x = kernforge::laid_out_as(dx, of);
  torch::stable::parallel_for(0, dx.numel(), kGrain, [&](int64_t begin, int64_t end) {
    relu_scale::backward_cpu(dtype, kernforge::element(dy, begin), kernforge::element(x, begin),
                             kernforge::mutable_element(dx, begin), alpha, end - begin);
  });
}

#endif

Tensor forward(const Tensor& x, double alpha) {
  const DType dtype = dtype_of(x);
  Tensor y = kernforge::new_like(x);
  run_forward(dtype, x, y, alpha);
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
  run_backward(dtype, dy, x, dx, alpha);
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
