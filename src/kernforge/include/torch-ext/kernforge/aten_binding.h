// SPDX-License-Identifier: Apache-2.0
//
// Helpers of a binding with ATen, built for each torch: results, the stream, and what a gradient in
// C++ needs. A kernel that replaces several of torch's launches does as well on the stable ABI,
// with one build for all of them (stable_binding.h).

#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "binding.h"
#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL)
#include <ATen/cuda/EmptyTensor.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace kernforge {

// The dtype of a tensor of floating-point numbers; `what` begins the message, as in "my_op: x".
inline DType dtype_of(const at::Tensor& t, const char* what) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return DType::kFloat32;
    case at::kHalf:
      return DType::kFloat16;
    case at::kBFloat16:
      return DType::kBFloat16;
    case at::kDouble:
      return DType::kFloat64;
    default:
      TORCH_CHECK_VALUE(false, what, " must be float32, float16, bfloat16 or float64, got ",
                        t.scalar_type());
  }
}

// A result like x. Where torch's operators would take over its strides the dispatcher is left out:
// it costs as much as the rest of a small call.
inline at::Tensor new_like(const at::Tensor& x) {
  if (!x.is_non_overlapping_and_dense()) return at::empty_like(x);
#if defined(CUDA_KERNEL)
  return at::detail::empty_strided_cuda(x.sizes(), x.strides(), x.scalar_type(), x.device());
#else
  return at::detail::empty_strided_cpu(x.sizes(), x.strides(), x.scalar_type());
#endif
}

inline bool same_strides(const at::Tensor& a, const at::Tensor& b) {
  return a.strides() == b.strides();
}

// The same values in memory laid out as `like`.
inline at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& from) {
  return same_strides(like, from) ? from : at::empty_like(like).copy_(from);
}

// The address of element i of memory without gaps.
inline const char* element(const at::Tensor& t, int64_t i) {
  return static_cast<const char*>(t.const_data_ptr()) + i * t.element_size();
}
inline char* mutable_element(const at::Tensor& t, int64_t i) {
  return static_cast<char*>(t.mutable_data_ptr()) + i * t.element_size();
}

#if defined(CUDA_KERNEL)

// Makes the device of t current and calls launch(stream), which returns a cudaError_t; `op` begins
// the message of a failure.
template <class Launch>
void on_device_of(const at::Tensor& t, const char* op, const Launch& launch) {
  const c10::cuda::CUDAGuard guard(t.device());
  const cudaError_t error = launch(c10::cuda::getCurrentCUDAStream(t.device().index()));
  TORCH_CHECK(error == cudaSuccess, op, ": CUDA error on ", t.device(), ": ",
              cudaGetErrorString(error));
}

#endif

// A handle to the op of this qualified name, "namespace::op"; to be kept.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// Whether the derivatives of what t goes into are closed to a Function in C++: those in forward
// mode, and those of torch.func. Torch's own operators have them.
inline bool only_by_torch(const at::Tensor& t) {
  return t._fw_grad(0).defined() || t.key_set().has(c10::DispatchKey::FuncTorchGradWrapper);
}

// Calls what an op does below its gradient for these keys: the device, a trace, a fake tensor.
template <class Op, class... Inputs>
auto below_autograd(const Op& op, c10::DispatchKeySet keys, const Inputs&... inputs) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.redispatch(keys & c10::after_autograd_keyset, inputs...);
}

}  // namespace kernforge

#include "elementwise_binding.h"  // last: it is made of what stands above
