// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration, and the gradient in C++.
// All arithmetic is behind vector_add.h.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../vector_add.h"

#define EXTENSION_METHODS methods
#include "direct.h"
#include "registration.h"

#if defined(CUDA_KERNEL)
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace {

using at::Tensor;
using vector_add::Type;

Type type_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return Type::kFloat;
    case at::kHalf:
      return Type::kHalf;
    case at::kBFloat16:
      return Type::kBfloat16;
    case at::kDouble:
      return Type::kDouble;
    default:
      TORCH_CHECK_VALUE(false, "vector_add: a must be float32, float16, bfloat16 or float64, got ",
                        t.scalar_type());
  }
}

void check(const Tensor& a, const Tensor& b) {
  TORCH_CHECK_VALUE(a.scalar_type() == b.scalar_type(), "vector_add: b must be ", a.scalar_type(),
                    " like a, got ", b.scalar_type());
  TORCH_CHECK_VALUE(a.device() == b.device(), "vector_add: b must be on ", a.device(),
                    " like a, got ", b.device());
  TORCH_CHECK_VALUE(a.sizes() == b.sizes(), "vector_add: b must have the shape of a ", a.sizes(),
                    ", got ", b.sizes(), "; shapes are not broadcast: expand the smaller one");
}

// Memory for a result, laid out as torch's own operators do for `a`. Where they would take over its
// strides the dispatcher is left out: it costs as much as the rest of a small call.
Tensor memory_like(const Tensor& a) {
  if (!a.is_non_overlapping_and_dense()) return at::empty_like(a);
#if defined(CUDA_KERNEL)
  return at::detail::empty_strided_cuda(a.sizes(), a.strides(), a.scalar_type(), a.device());
#else
  return at::detail::empty_strided_cpu(a.sizes(), a.strides(), a.scalar_type());
#endif
}

// The same values in memory laid out as `out`.
Tensor laid_out_as(const Tensor& out, const Tensor& from) {
  return from.strides() == out.strides() ? from : at::empty_like(out).copy_(from);
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 15;  // elements: some 10 us of one core, over a thread's start

void add(Type type, const Tensor& a, const Tensor& b, const Tensor& out) {
  const int64_t bytes = out.element_size();
  const auto* left = static_cast<const char*>(a.const_data_ptr());
  const auto* right = static_cast<const char*>(b.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * bytes;
    vector_add::add_cpu(type, left + at, right + at, to + at, end - begin);
  });
}

#elif defined(CUDA_KERNEL)

void add(Type type, const Tensor& a, const Tensor& b, const Tensor& out) {
  const c10::cuda::CUDAGuard guard(out.device());
  const cudaError_t error =
      vector_add::add_launch(type, a.const_data_ptr(), b.const_data_ptr(), out.mutable_data_ptr(),
                             out.numel(), c10::cuda::getCurrentCUDAStream(out.device().index()));
  TORCH_CHECK(error == cudaSuccess, "vector_add: CUDA error on ", out.device(), ": ",
              cudaGetErrorString(error));
}

#endif

// Inputs that are not laid out as the result are copied.
Tensor forward(const Tensor& a, const Tensor& b) {
  const Type type = type_of(a);
  check(a, b);
  Tensor out = memory_like(a);
  add(type, laid_out_as(out, a), laid_out_as(out, b), out);
  return out;
}

#define VECTOR_ADD_TEXT(name) #name
#define VECTOR_ADD_QUALIFIED(space) VECTOR_ADD_TEXT(space) "::vector_add"

const auto& vector_add_op() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(VECTOR_ADD_QUALIFIED(TORCH_EXTENSION_NAME), "")
                             .typed<Tensor(const Tensor&, const Tensor&)>();
  return op;
}

// What comes next for these keys: the device, a compiler's trace, a fake tensor.
Tensor below_autograd(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return vector_add_op().redispatch(keys & c10::after_autograd_keyset, a, b);
}

// The gradient in C++.
struct VectorAdd : torch::autograd::Function<VectorAdd> {
  static Tensor forward(torch::autograd::AutogradContext*, c10::DispatchKeySet keys,
                        const Tensor& a, const Tensor& b) {
    return below_autograd(keys, a, b);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {Tensor(), gradients[0], gradients[0]};
  }
};

Tensor with_gradient(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  if (at::GradMode::is_enabled() && (a.requires_grad() || b.requires_grad())) {
    return VectorAdd::apply(keys, a, b);
  }
  return below_autograd(keys, a, b);  // no node to make, so none is paid for
}

// A build holds one backend; the other device gets a sentence instead of the dispatcher's table.
Tensor elsewhere(const Tensor& a, const Tensor& b) {
  check(a, b);  // the dispatcher goes by either
#if defined(CUDA_KERNEL)
  TORCH_CHECK_VALUE(false, "vector_add: a is on ", a.device(), ", this build runs on cuda");
#else
  TORCH_CHECK_VALUE(false, "vector_add: a is on ", a.device(), ", this build runs on cpu");
#endif
}

// The op for Python, where it is called most.
PyMethodDef methods[] = {direct::method<&vector_add_op>("vector_add"), {}};

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("vector_add(Tensor a, Tensor b) -> Tensor");
  // The same without a gradient, for the one that is written in Python.
  ops.def("vector_add_forward(Tensor a, Tensor b) -> Tensor");
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#if defined(CPU_KERNEL)
  ops.impl("vector_add", &forward);
  ops.impl("vector_add_forward", &forward);
#else
  ops.impl("vector_add", &elsewhere);
  ops.impl("vector_add_forward", &elsewhere);
#endif
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#if defined(CUDA_KERNEL)
  ops.impl("vector_add", &forward);
  ops.impl("vector_add_forward", &forward);
#else
  ops.impl("vector_add", &elsewhere);
  ops.impl("vector_add_forward", &elsewhere);
#endif
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("vector_add", &with_gradient);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
