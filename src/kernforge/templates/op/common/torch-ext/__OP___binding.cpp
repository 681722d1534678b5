// SPDX-License-Identifier: __LICENSE__
//
// The op __OP__ as torch sees it, on torch's stable ABI, and the loop for CPUs. It joins the op
// namespace that another source of the project defines.

#include "kernforge/elementwise.h"
#include "kernforge/stable_binding.h"

#if defined(CUDA_KERNEL)
// In __OP__.cu.
cudaError_t __OP___launch(const void* x, void* y, kernforge::DType dtype, int64_t count,
                          cudaStream_t stream);
#endif

namespace {

using kernforge::Tensor;

Tensor run(const Tensor& x) {
  const auto dtype = kernforge::dtype_of(x, "__OP__: x");
  const Tensor from = torch::stable::contiguous(x);
  const Tensor y = kernforge::new_like(from);
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(from, "__OP__", [&](cudaStream_t stream) {
    return __OP___launch(from.const_data_ptr(), y.mutable_data_ptr(), dtype, from.numel(), stream);
  });
#else
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;  // double for double, else float
    const auto square = [](W v) { return v * v; };
    kernforge::elementwise<T>(square, from.numel(), y.mutable_data_ptr(), from.const_data_ptr());
  });
#endif
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, ops) { ops.def("__OP__(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("__OP__", TORCH_BOX(&run));
}
