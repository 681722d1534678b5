// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number on NVIDIA GPUs, forward and backward; formulas in relu_scale.h.

#include "kernforge/elementwise.cuh"
#include "relu_scale.h"

namespace relu_scale {
namespace {

// Chosen by the bytes of one tensor, as measured on an H200 (README.md). A device with figures of
// its own gets a row of its own.
//
//   tensors              threads a block, vectors a thread   why
//   below 16 MiB         256, 1
//   16 to 256 MiB        128, 2                              5 % faster (gelu-approx, 16 MiB)
//   from 256 MiB         128, 1                              99.9 % of a copy; 4 vectors 96 %
//   two inputs           256, 1                              2 vectors are slower (gelu-approx)
struct PolicySelector {
  template <class T, int kInputs, class Launch>
  static cudaError_t select(int64_t bytes, const kernforge::Device&, const Launch& launch) {
    constexpr int kVector = kernforge::kVectorLength<T>;
    if constexpr (kInputs == 1) {
      if (bytes >= 256 << 20) return launch(kernforge::ElementwisePolicy<128, kVector, kVector>{});
      if (bytes >= 16 << 20) {
        return launch(kernforge::ElementwisePolicy<128, 2 * kVector, kVector>{});
      }
    }
    return launch(kernforge::ElementwisePolicy<256, kVector, kVector>{});
  }
};

}  // namespace

cudaError_t forward_launch(DType dtype, const void* x, void* y, double alpha, int64_t n,
                           cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    return kernforge::elementwise<T, PolicySelector>(Forward<W>{static_cast<W>(alpha)}, n, stream,
                                                     y, x);
  });
}

cudaError_t backward_launch(DType dtype, const void* dy, const void* x, void* dx, double alpha,
                            int64_t n, cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    return kernforge::elementwise<T, PolicySelector>(Backward<W>{static_cast<W>(alpha)}, n, stream,
                                                     dx, dy, x);
  });
}

}  // namespace relu_scale
