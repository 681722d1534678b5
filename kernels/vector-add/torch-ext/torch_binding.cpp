// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration, and the gradient in C++.
// All arithmetic is behind vector_add.h.

#include <ATen/ops/add.h>
#include <ATen/ops/result_type.h>

#include "../vector_add.h"
#include "kernforge/aten_binding.h"
#include "registration.h"

namespace {

using at::Tensor;
using kernforge::DType;

void check(const Tensor& a, const Tensor& b) {
  TORCH_CHECK_VALUE(a.device() == b.device(), "vector_add: b must be on ", a.device(),
                    " like a, got ", b.device());
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(), "vector_add: b must have the shape of a ", a.sizes(),
                    ", got ", b.sizes(), "; shapes are not broadcast: expand the smaller one");
}

void add(DType dtype, const Tensor& a, const Tensor& b, const Tensor& out) {
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(out, "vector_add", [&](cudaStream_t stream) {
    return vector_add::add_launch(dtype, a.const_data_ptr(), b.const_data_ptr(),
                                  out.mutable_data_ptr(), out.numel(), stream);
  });
#else
  constexpr int64_t kGrain = 1 << 15;  // elements: some 10 us of one core, over a thread's start
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    vector_add::add_cpu(dtype, kernforge::element(a, begin), kernforge::element(b, begin),
                        kernforge::mutable_element(out, begin), end - begin);
  });
#endif
}

// Two dtypes, and inputs that are not laid out as the result, are torch's.
Tensor forward(const Tensor& a, const Tensor& b) {
  const DType dtype = kernforge::dtype_of(a, "vector_add: a");
  kernforge::dtype_of(b, "vector_add: b");
  check(a, b);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const auto type = at::promote_types(a.scalar_type(), b.scalar_type());
  Tensor out =
      a.scalar_type() == type ? kernforge::new_like(a) : at::empty_like(a, at::TensorOptions(type));
  if (a.scalar_type() == b.scalar_type() && a.strides() == out.strides() &&
      b.strides() == out.strides()) {
    add(dtype, a, b, out);
    return out;
  }
  return at::add_out(out, a, b);
}

const auto& vector_add_op() {
  static const auto op = kernforge::find_op<Tensor(const Tensor&, const Tensor&)>(
      STRINGIFY(TORCH_EXTENSION_NAME) "::vector_add");
  return op;
}

// The gradient in C++.
struct VectorAdd : torch::autograd::Function<VectorAdd> {
  static Tensor forward(torch::autograd::AutogradContext*, c10::DispatchKeySet keys,
                        const Tensor& a, const Tensor& b) {
    return kernforge::below_autograd(vector_add_op(), keys, a, b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {Tensor(), gradients[0], gradients[0]};
  }
};

Tensor with_gradient(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  if (kernforge::only_by_torch(a) || kernforge::only_by_torch(b)) return at::add(a, b);
  if (at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) {
    return VectorAdd::apply(keys, a, b);
  }
  // No node to make, so none is paid for.
  return kernforge::below_autograd(vector_add_op(), keys, a, b);
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("vector_add(Tensor a, Tensor b) -> Tensor");
  // The same without a gradient, for the one that is written in Python.
  ops.def("vector_add_forward(Tensor a, Tensor b) -> Tensor");
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("vector_add", &forward);
  ops.impl("vector_add_forward", &forward);
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("vector_add", &with_gradient);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
