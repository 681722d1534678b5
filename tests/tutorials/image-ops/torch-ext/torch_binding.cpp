#include <torch/library.h>

#include "registration.h"
#include "torch_binding.h"

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("rgb_to_gray(Tensor image) -> Tensor");
  ops.def("normalize_volume(Tensor volume, float max_value) -> Tensor");
#if defined(CPU_KERNEL)
  ops.impl("rgb_to_gray", torch::kCPU, &rgb_to_gray);
  ops.impl("normalize_volume", torch::kCPU, &normalize_volume);
#else
  ops.impl("rgb_to_gray", torch::kCUDA, &rgb_to_gray);
  ops.impl("normalize_volume", torch::kCUDA, &normalize_volume);
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
