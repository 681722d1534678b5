// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration, and the gradient in C++.
// With ATen, not with the stable ABI: torch has one kernel for this function as well, and beside it
// the stable ABI's half microsecond a call is a tenth of the time (README.md). All arithmetic is
// behind gelu_approx.h.

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../gelu_approx.h"

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
using gelu_approx::Type;

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
      TORCH_CHECK_VALUE(false, "gelu_approx: x must be float32, float16, bfloat16 or float64, got ",
                        t.scalar_type());
  }
}

void check_gradient(const Tensor& grad, const Tensor& x) {
  TORCH_CHECK_VALUE(grad.scalar_type() == x.scalar_type(), "gelu_approx: grad must be ",
                    x.scalar_type(), " like x, got ", grad.scalar_type());
  TORCH_CHECK_VALUE(grad.device() == x.device(), "gelu_approx: grad must be on ", x.device(),
                    " like x, got ", grad.device());
  TORCH_CHECK_VALUE(grad.sizes() == x.sizes(), "gelu_approx: grad must have the shape of x ",
                    x.sizes(), ", got ", grad.sizes());
}

// Memory for a result, laid out as torch's own operators do for `x`. Where they would take over its
// strides the dispatcher is left out: it costs as much as the rest of a small call.
Tensor memory_like(const Tensor& x) {
  if (!x.is_non_overlapping_and_dense()) return at::empty_like(x);
#if defined(CUDA_KERNEL)
  return at::detail::empty_strided_cuda(x.sizes(), x.strides(), x.scalar_type(), x.device());
#else
  return at::detail::empty_strided_cpu(x.sizes(), x.strides(), x.scalar_type());
#endif
}

// The same values in memory laid out as `out`.
Tensor laid_out_as(const Tensor& out, const Tensor& from) {
  return from.strides() == out.strides() ? from : at::empty_like(out).copy_(from);
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 13;  // elements: some 10 us of one core, over a thread's start

const char* bytes_of(const Tensor& t) { return static_cast<const char*>(t.const_data_ptr()); }

void run_forward(Type type, const Tensor& x, const Tensor& out) {
  const int64_t bytes = out.element_size();
  const char* from = bytes_of(x);
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    gelu_approx::forward_cpu(type, from + begin * bytes, to + begin * bytes, end - begin);
  });
}

void run_backward(Type type, const Tensor& grad, const Tensor& x, const Tensor& out) {
  const int64_t bytes = out.element_size();
  const char *dy = bytes_of(grad), *from = bytes_of(x);
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  at::parallel_for(0, out.numel(), kGrain, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * bytes;
    gelu_approx::backward_cpu(type, dy + at, from + at, to + at, end - begin);
  });
}

#elif defined(CUDA_KERNEL)

// Gives the stream of the device, made current, to `launch`.
template <class Launch>
void on_device_of(const Tensor& out, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(out.device());
  const cudaError_t error = launch(c10::cuda::getCurrentCUDAStream(out.device().index()));
  TORCH_CHECK(error == cudaSuccess, "gelu_approx: CUDA error on ", out.device(), ": ",
              cudaGetErrorString(error));
}

void run_forward(Type type, const Tensor& x, const Tensor& out) {
  on_device_of(out, [&](cudaStream_t stream) {
    return gelu_approx::forward_launch(type, x.const_data_ptr(), out.mutable_data_ptr(),
                                       out.numel(), stream);
  });
}

void run_backward(Type type, const Tensor& grad, const Tensor& x, const Tensor& out) {
  on_device_of(out, [&](cudaStream_t stream) {
    return gelu_approx::backward_launch(type, grad.const_data_ptr(), x.const_data_ptr(),
                                        out.mutable_data_ptr(), out.numel(), stream);
  });
}

#endif

// Inputs that are not laid out as the result are copied.
Tensor forward(const Tensor& x) {
  const Type type = type_of(x);
  Tensor out = memory_like(x);
  run_forward(type, laid_out_as(out, x), out);
  return out;
}

Tensor backward(const Tensor& grad, const Tensor& x) {
  const Type type = type_of(x);
  check_gradient(grad, x);
  Tensor out = memory_like(x);
  run_backward(type, laid_out_as(out, grad), laid_out_as(out, x), out);
  return out;
}

#define GELU_APPROX_TEXT(name) #name
#define GELU_APPROX_QUALIFIED(space, name) GELU_APPROX_TEXT(space) "::" name

const auto& gelu_approx_op() {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(GELU_APPROX_QUALIFIED(TORCH_EXTENSION_NAME, "gelu_approx"), "")
          .typed<Tensor(const Tensor&)>();
  return op;
}

// What comes next for these keys: the device, a compiler's trace, a fake tensor.
Tensor below_autograd(c10::DispatchKeySet keys, const Tensor& x) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return gelu_approx_op().redispatch(keys & c10::after_autograd_keyset, x);
}

// The gradient in torch's own operators, for those who differentiate it again. Of 0 and less, where
// the sigmoid is small and its complement is no difference of near numbers; that of x > 0 is
// 1 - gradient(-x). In a wider type, because the second derivative passes zero where numbers that
// are much alike are subtracted.
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
    return below_autograd(keys, x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow(GELU_APPROX_QUALIFIED(TORCH_EXTENSION_NAME, "gelu_approx_backward"),
                               "")
            .typed<Tensor(const Tensor&, const Tensor&)>();
    const Tensor x = context->get_saved_variables()[0];
    const Tensor& grad = gradients[0];
    if (at::GradMode::is_enabled() && (grad.requires_grad() || x.requires_grad())) {
      return {Tensor(), derivative(grad, x)};
    }
    return {Tensor(), op.call(grad, x)};
  }
};

Tensor with_gradient(c10::DispatchKeySet keys, const Tensor& x) {
  if (at::GradMode::is_enabled() && x.requires_grad()) return Gelu::apply(keys, x);
  return below_autograd(keys, x);  // no node to make, so none is paid for
}

// The op for Python, where it is called most.
PyMethodDef methods[] = {direct::method<&gelu_approx_op>("gelu_approx"), {}};

// A build holds one backend; the other device gets a sentence instead of the dispatcher's table.
#if defined(CUDA_KERNEL)
constexpr const char* kBuiltFor = "cuda";
#else
constexpr const char* kBuiltFor = "cpu";
#endif

Tensor forward_elsewhere(const Tensor& x) {
  TORCH_CHECK_VALUE(false, "gelu_approx: x is on ", x.device(), ", this build runs on ", kBuiltFor);
}

Tensor backward_elsewhere(const Tensor&, const Tensor& x) { return forward_elsewhere(x); }

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("gelu_approx(Tensor x) -> Tensor");
  ops.def("gelu_approx_backward(Tensor grad, Tensor x) -> Tensor");
}

#if defined(CUDA_KERNEL)
#define GELU_APPROX_HERE CUDA
#define GELU_APPROX_ELSEWHERE CPU
#else
#define GELU_APPROX_HERE CPU
#define GELU_APPROX_ELSEWHERE CUDA
#endif

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, GELU_APPROX_HERE, ops) {
  ops.impl("gelu_approx", &forward);
  ops.impl("gelu_approx_backward", &backward);
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, GELU_APPROX_ELSEWHERE, ops) {
  ops.impl("gelu_approx", &forward_elsewhere);
  ops.impl("gelu_approx_backward", &backward_elsewhere);
}

TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, Autograd, ops) {
  ops.impl("gelu_approx", &with_gradient);
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
