// SPDX-License-Identifier: Apache-2.0
//
// torch's own matrix products of any strides into a tensor, on its stable ABI: those of the backend
// itself, without the dispatcher's time. Nothing is recorded for a gradient.

#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#if defined(CUDA_KERNEL)
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>
#endif

#include <optional>

#include "stable_binding.h"

namespace kernforge {

// While it lives, torch records nothing for a gradient.
class NoGradient {
 public:
  NoGradient() : before_(aoti_torch_grad_mode_is_enabled()) {
    aoti_torch_grad_mode_set_enabled(false);
  }
  ~NoGradient() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGradient(const NoGradient&) = delete;
  NoGradient& operator=(const NoGradient&) = delete;

 private:
  bool before_;
};

// The memory of t as a matrix; no copy.
inline Tensor matrix_of(const Tensor& t, int64_t rows, int64_t columns, int64_t row_stride,
                        int64_t column_stride) {
  const int64_t sizes[] = {rows, columns}, strides[] = {row_stride, column_stride};
  AtenTensorHandle view = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch__reinterpret_tensor(t.get(), 2, sizes, strides, 0, &view));
  return Tensor(view);
}
inline Tensor transposed(const Tensor& t) {
  return matrix_of(t, t.size(1), t.size(0), t.stride(1), t.stride(0));
}

// to = a b, of matrices or, with three dimensions, of as many of them. To two dimensions `added`,
// [columns] or [rows, columns], is added before the result is rounded.
inline void product_into(const Tensor& to, const Tensor& a, const Tensor& b,
                         const std::optional<Tensor>& added = std::nullopt) {
#if defined(CUDA_KERNEL)
  constexpr auto mm = aoti_torch_cuda_mm_out;
  constexpr auto addmm = aoti_torch_cuda_addmm_out;
  constexpr auto bmm = aoti_torch_cuda_bmm_out;
#else
  constexpr auto mm = aoti_torch_cpu_mm_out;
  constexpr auto addmm = aoti_torch_cpu_addmm_out;
  constexpr auto bmm = aoti_torch_cpu_bmm_out;
#endif
  const NoGradient guard;  // a product copies what it adds through the dispatcher
  if (to.dim() == 3) {
    TORCH_ERROR_CODE_CHECK(bmm(to.get(), a.get(), b.get()));
  } else if (added) {
    TORCH_ERROR_CODE_CHECK(addmm(to.get(), added->get(), a.get(), b.get(), 1, 1));
  } else {
    TORCH_ERROR_CODE_CHECK(mm(to.get(), a.get(), b.get()));
  }
}

}  // namespace kernforge
