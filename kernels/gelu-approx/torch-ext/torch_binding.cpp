// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration, and the gradient in C++.
// With ATen, not with the stable ABI: torch has one kernel for this function as well, and beside it
// the stable ABI's half microsecond a call is a tenth of the time (README.md). All arithmetic is
// behind gelu_approx.h.

#include <ATen/ops/gelu.h>

#include "../gelu_approx.h"
#include "kernforge/aten_binding.h"
#include "registration.h"

namespace {

using at::Tensor;
using kernforge::DType;

void check_gradient(const Tensor& grad, const Tensor& x) {
  TORCH_CHECK_VALUE(grad.scalar_type() == x.scalar_type(), "gelu_approx: grad must be ",
                    x.scalar_type(), " like x, got ", grad.scalar_type());
  TORCH_CHECK_VALUE(grad.device() == x.device(), "gelu_approx: grad must be on ", x.device(),
                    " like x, got ", grad.device());
  TORCH_CHECK_VALUE(grad.sizes() == x.sizes(), "gelu_approx: grad must have the shape of x ",
                    x.sizes(), ", got ", grad.sizes());
}

#if defined(CUDA_KERNEL)

void run_forward(DType dtype, const Tensor& x, const Tensor& out) {
  kernforge::launch_elementwise(
      "gelu_approx", out,
      [&](const kernforge::Strides<1>* strides, cudaStream_t stream, const void* from) {
        return gelu_approx::forward_launch(dtype, from, out.mutable_data_ptr(), out.numel(), stream,
                                           strides);
      },
      x);
}

void run_backward(DType dtype, const Tensor& grad, const Tensor& x, const Tensor& out) {
  kernforge::launch_elementwise(
      "gelu_approx", out,
      [&](const kernforge::Strides<2>* strides, cudaStream_t stream, const void* dy,
          const void* from) {
        return gelu_approx::backward_launch(dtype, dy, from, out.mutable_data_ptr(), out.numel(),
                                            stream, strides);
      },
      grad, x);
}

#else

constexpr int64_t kGrain = 1 << 13;  // elements: some 10 us of one core, over a thread's start

void run_forward(DType dtype, const Tensor& given, const Tensor& out) {
  const Tensor x = kernforge::laid_out_as(out, given);
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    gelu_approx::forward_cpu(dtype, kernforge::element(x, begin),
                             kernforge::mutable_element(out, begin), end - begin);
  });
}

void run_backward(DType dtype, const Tensor& given, const Tensor& of, const Tensor& out) {
  const Tensor grad = kernforge::laid_out_as(out, given), x = kernforge::laid_out_as(out, of);
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    gelu_approx::backward_cpu(dtype, kernforge::element(grad, begin), kernforge::element(x, begin),
                              kernforge::mutable_element(out, begin), end - begin);
  });
}

#endif

Tensor forward(const Tensor& x) {
  const DType dtype = kernforge::dtype_of(x, "gelu_approx: x");
  Tensor out = kernforge::new_like(x);
  run_forward(dtype, x, out);
  return out;
}

Tensor backward(const Tensor& grad, const Tensor& x) {
  const DType dtype = kernforge::dtype_of(x, "gelu_approx: x");
  check_gradient(grad, x);
  Tensor out = kernforge::new_like(x);
  run_backward(dtype, grad, x, out);
  return out;
}

const auto& gelu_approx_op() {
  static const auto op =
      kernforge::find_op<Tensor(const Tensor&)>(STRINGIFY(TORCH_EXTENSION_NAME) "::gelu_approx");
  return op;
}

// The gradient in torch's own operators, for those who differentiate it again: in a wider type,
// since the second derivative is near 0 by the difference of larger numbers. Of 0 and less, where
// the sigmoid is small and its complement is no such difference; that of x > 0 is 1 - gradient(-x).
Tensor derivative(const Tensor& grad, const Tensor& x) {
  using gelu_approx::kCubic;
  using gelu_approx::kSlope;
  const Tensor wide = x.to(x.element_size() < 4 ? at::kFloat : at::kDouble);
  const Tensor near = wide.clamp(-40.0, 40.0);
  const Tensor below = near.lt(0);
  const Tensor size = at::where(below, near.neg(), near);  // abs() has no slope at 0
  const Tensor square = size.mul(size);
  const Tensor s = size.mul(square.mul(kCubic).add(1)).mul(-kSlope).sigmoid();
  const Tensor slope = square.mul(3 * kCubic).add(1).mul(kSlope);
  const Tensor part = s.sub(size.mul(slope).mul(s).mul(s.neg().add(1)));
  const Tensor whole = at::where(below, part, part.neg().add(1));
  return grad.to(wide.scalar_type()).mul(whole).to(x.scalar_type());
}

struct Gelu : torch::autograd::Function<Gelu> {
  static Tensor forward(torch::autograd::AutogradContext* context, c10::DispatchKeySet keys,
                        const Tensor& x) {
    context->save_for_backward({x});
    return kernforge::below_autograd(gelu_approx_op(), keys, x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    static const auto op = kernforge::find_op<Tensor(const Tensor&, const Tensor&)>(
        STRINGIFY(TORCH_EXTENSION_NAME) "::gelu_approx_backward");
    const Tensor x = context->get_saved_variables()[0];
    const Tensor& grad = gradients[0];
    if (at::GradMode::is_enabled() && (grad.requires_grad() || x.requires_grad())) {
      return {Tensor(), derivative(grad, x)};
    }
    return {Tensor(), op.call(grad, x)};
  }
};

Tensor with_gradient(c10::DispatchKeySet keys, const Tensor& x) {
  if (kernforge::only_by_torch(x)) return at::gelu(x, "tanh");
  if (at::GradMode::is_enabled() && x.requires_grad()) return Gelu::apply(keys, x);
  return kernforge::below_autograd(gelu_approx_op(), keys,
                                   x);  // no node to make, so none is paid for
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gelu_approx(Tensor x) -> Tensor");
  ops.def("gelu_approx_backward(Tensor grad, Tensor x) -> Tensor");
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("gelu_approx", &forward);
  ops.impl("gelu_approx_backward", &backward);
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("gelu_approx", &with_gradient);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
