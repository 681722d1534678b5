// SPDX-License-Identifier: __LICENSE__
//
// The operator for torch, on torch's stable ABI, and the loop for CPUs. A build defines CPU_KERNEL
// or CUDA_KERNEL.

#include "kernforge/elementwise.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

#if defined(CUDA_KERNEL)
// In __PYTHON_NAME__.cu.
cudaError_t __PYTHON_NAME___launch(const void* x, void* y, double scale, kernforge::DType dtype,
                                   int64_t count, cudaStream_t stream);
#endif

namespace {

using kernforge::Tensor;

Tensor run(const Tensor& x, double scale) {
  const auto dtype = kernforge::dtype_of(x, "__PYTHON_NAME__: x");
  const Tensor from = torch::stable::contiguous(x);
  const Tensor y = kernforge::new_like(from);
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(from, "__PYTHON_NAME__", [&](cudaStream_t stream) {
    return __PYTHON_NAME___launch(from.const_data_ptr(), y.mutable_data_ptr(), scale, dtype,
                                  from.numel(), stream);
  });
#else
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;  // double for double, otherwise float
    const auto scaled_relu = [factor = static_cast<W>(scale)](W v) {
      return (v < 0 ? 0 : v) * factor;  // a NaN stays one
    };
    kernforge::elementwise<T>(scaled_relu, from.numel(), y.mutable_data_ptr(),
                              from.const_data_ptr());
  });
#endif
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("__PYTHON_NAME__(Tensor x, float scale) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("__PYTHON_NAME__", TORCH_BOX(&run));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
