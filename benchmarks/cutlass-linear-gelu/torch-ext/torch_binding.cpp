// SPDX-License-Identifier: Apache-2.0
//
// The op as torch sees it, on torch's stable ABI.

#include <array>
#include <string>

#include "../linear_gelu.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::Tensor;

Tensor linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t kernel,
                   int64_t swizzle, int64_t multiprocessors) {
  using namespace cutlass_linear_gelu;
  const std::array kernels{&cooperative_128x256, &pingpong_128x128, &pingpong_64x256};
  if (kernel < 0 || kernel >= static_cast<int64_t>(kernels.size())) {
    kernforge::value_error("linear_gelu: kernel must be 0, 1 or 2, got " + std::to_string(kernel));
  }
  for (const Tensor* t : {&x, &weight, &bias}) {
    if (t->scalar_type() != torch::headeronly::ScalarType::BFloat16 || !t->is_contiguous()) {
      kernforge::value_error("linear_gelu: x, weight and bias must be contiguous BFloat16");
    }
  }
  if (x.dim() != 2 || weight.dim() != 2 || weight.size(1) != x.size(1) || bias.dim() != 1 ||
      bias.size(0) != weight.size(0)) {
    kernforge::value_error(
        "linear_gelu: x is [rows, depth], weight [columns, depth], bias [columns]");
  }
  const int64_t sizes[] = {x.size(0), weight.size(0)};
  const Tensor y = kernforge::new_contiguous(x, sizes, 2, x.scalar_type());
  const Problem of{x.const_data_ptr(),
                   weight.const_data_ptr(),
                   bias.const_data_ptr(),
                   y.mutable_data_ptr(),
                   static_cast<int>(x.size(0)),
                   static_cast<int>(x.size(1)),
                   static_cast<int>(weight.size(0)),
                   static_cast<int>(swizzle),
                   static_cast<int>(multiprocessors)};
  const Kernel& chosen = *kernels[kernel];
  const int64_t bytes[] = {chosen.workspace(of)};
  const Tensor memory = kernforge::new_contiguous(x, bytes, 1, torch::headeronly::ScalarType::Byte);
  kernforge::on_device_of(x, "linear_gelu", [&](cudaStream_t stream) {
    return chosen.launch(of, memory.mutable_data_ptr(), stream);
  });
  return y;
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "linear_gelu(Tensor x, Tensor weight, Tensor bias, int kernel, int swizzle, int "
      "multiprocessors) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("linear_gelu", TORCH_BOX(&linear_gelu));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
