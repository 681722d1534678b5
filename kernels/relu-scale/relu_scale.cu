// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number on NVIDIA GPUs, forward and backward; formulas in relu_scale.h.

#include "kernforge/elementwise.cuh"
#include "relu_scale.h"

namespace relu_scale {

cudaError_t forward_launch(DType dtype, const void* x, void* y, double alpha, int64_t n,
                           cudaStream_t stream, const kernforge::Strides<1>* strides) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const Forward<W> op{static_cast<W>(alpha)};
    if (strides) return kernforge::strided_elementwise<T>(op, n, *strides, stream, y, x);
    return kernforge::elementwise<T>(op, n, stream, y, x);
  });
}

cudaError_t backward_launch(DType dtype, const void* dy, const void* x, void* dx, double alpha,
                            int64_t n, cudaStream_t stream, const kernforge::Strides<2>* strides) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const Backward<W> op{static_cast<W>(alpha)};
    if (strides) return kernforge::strided_elementwise<T>(op, n, *strides, stream, dx, dy, x);
    return kernforge::elementwise<T>(op, n, stream, dx, dy, x);
  });
}

}  // namespace relu_scale
