// SPDX-License-Identifier: __LICENSE__
//
// The operator for torch: checks, allocation, stream, registration. It uses torch's stable ABI, so
// that one build works with every torch from 2.10 on. A build defines CPU_KERNEL or CUDA_KERNEL.

#include "../__PYTHON_NAME__.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::Tensor;

Tensor run(const Tensor& x, double scale) {
  const auto dtype = kernforge::dtype_of(x, "__PYTHON_NAME__: x");
  const Tensor from = torch::stable::contiguous(x);
  const Tensor y = kernforge::new_like(from);
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(from, "__PYTHON_NAME__", [&](cudaStream_t stream) {
    return __PYTHON_NAME___kernel::launch(from.const_data_ptr(), y.mutable_data_ptr(), scale, dtype,
                                          from.numel(), stream);
  });
#else
  constexpr int64_t kGrain = 1 << 15;  // elements: well over the cost of starting a thread
  torch::stable::parallel_for(0, from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    __PYTHON_NAME___kernel::run_cpu(kernforge::element(from, begin),
                                    kernforge::mutable_element(y, begin), scale, dtype,
                                    end - begin);
  });
#endif
  return y;
}

// [gradient]
Tensor run_backward(const Tensor& grad, const Tensor& x, double scale) {
  const auto dtype = kernforge::dtype_of(x, "__PYTHON_NAME__: x");
  if (grad.scalar_type() != x.scalar_type() ||
      kernforge::shape_of(grad) != kernforge::shape_of(x)) {
    kernforge::value_error("__PYTHON_NAME__: grad must be like x, " +
                           kernforge::name_of(x.scalar_type()) + " of " + kernforge::shape_of(x) +
                           ", got " + kernforge::name_of(grad.scalar_type()) + " of " +
                           kernforge::shape_of(grad));
  }
  const Tensor of_y = torch::stable::contiguous(grad);
  const Tensor from = torch::stable::contiguous(x);
  const Tensor dx = kernforge::new_like(from);
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(from, "__PYTHON_NAME__", [&](cudaStream_t stream) {
    return __PYTHON_NAME___kernel::launch_backward(of_y.const_data_ptr(), from.const_data_ptr(),
                                                   dx.mutable_data_ptr(), scale, dtype,
                                                   from.numel(), stream);
  });
#else
  constexpr int64_t kGrain = 1 << 15;
  torch::stable::parallel_for(0, from.numel(), kGrain, [&](int64_t begin, int64_t end) {
    __PYTHON_NAME___kernel::run_cpu_backward(
        kernforge::element(of_y, begin), kernforge::element(from, begin),
        kernforge::mutable_element(dx, begin), scale, dtype, end - begin);
  });
#endif
  return dx;
}

// [end]
}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("__PYTHON_NAME__(Tensor x, float scale) -> Tensor");
  // [gradient]
  ops.def("__PYTHON_NAME___backward(Tensor grad, Tensor x, float scale) -> Tensor");
  // [end]
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("__PYTHON_NAME__", TORCH_BOX(&run));
  // [gradient]
  ops.impl("__PYTHON_NAME___backward", TORCH_BOX(&run_backward));
  // [end]
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
