// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on NVIDIA GPUs. kernforge/elementwise.cuh has the kernel that applies the
// formula to each element; write another kernel here for an operator that is not element-wise.

#include "__PYTHON_NAME__.h"
#include "kernforge/elementwise.cuh"

namespace __PYTHON_NAME___kernel {

// W is the type of the computation: double for double, otherwise float.
template <class W>
struct ScaledRelu {
  W scale;
  __device__ W operator()(W v) const {
    return (v < 0 ? 0 : v) * scale;  // a NaN stays one
  }
};

// [gradient]
template <class W>
struct ScaledReluGradient {
  W scale;
  __device__ W operator()(W grad, W v) const { return v > 0 ? grad * scale : 0; }
};

// [end]
cudaError_t launch(const void* x, void* y, double scale, DType dtype, int64_t count,
                   cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const ScaledRelu<W> op{static_cast<W>(scale)};
    return kernforge::elementwise<T>(op, count, stream, y, x);
  });
}

// [gradient]
cudaError_t launch_backward(const void* grad, const void* x, void* dx, double scale, DType dtype,
                            int64_t count, cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const ScaledReluGradient<W> op{static_cast<W>(scale)};
    return kernforge::elementwise<T>(op, count, stream, dx, grad, x);
  });
}

// [end]
}  // namespace __PYTHON_NAME___kernel
