// SPDX-License-Identifier: Apache-2.0
//
// img2gray's op on ATen, which ties a build to one torch: what bench_build.py compiles once for
// each. Packed pictures only; the kernel's own binding is the one to use.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#if defined(CUDA_KERNEL)
#include <c10/cuda/CUDAStream.h>
#endif

#include "../img2gray.h"
#include "registration.h"

namespace {

at::Tensor gray(const at::Tensor& image, int64_t weights) {
  TORCH_CHECK(image.dim() == 3 && image.size(2) == 3 && image.is_contiguous(), "[H, W, 3] only");
  TORCH_CHECK(image.scalar_type() == at::kByte, "image must be uint8, got ", image.scalar_type());
  at::Tensor out = at::empty({image.size(0), image.size(1)}, image.options());
  img2gray::Layout layout{};
  layout.batch = 1;
  layout.height = image.size(0);
  layout.width = image.size(1);
  layout.in_row = image.stride(0);
  layout.in_pixel = 3;
  layout.in_channel = 1;
  layout.out_row = image.size(1);
  const auto* from = image.const_data_ptr<uint8_t>();
  auto* to = out.mutable_data_ptr<uint8_t>();
  const auto kind = static_cast<img2gray::Weights>(weights);
#if defined(CUDA_KERNEL)
  const auto stream = c10::cuda::getCurrentCUDAStream().stream();
  const cudaError_t error = img2gray::gray_launch(from, to, layout, kind, stream);
  TORCH_CHECK(error == cudaSuccess, cudaGetErrorString(error));
#else
  img2gray::gray_cpu(from, to, layout, kind, 0, layout.pixels());
#endif
  return out;
}

}  // namespace

TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor image, int weights) -> Tensor");
}

#if defined(CUDA_KERNEL)
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) { ops.impl("img2gray", &gray); }
#else
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) { ops.impl("img2gray", &gray); }
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
