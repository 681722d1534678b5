// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on NVIDIA GPUs. No torch header in here: that keeps the compile time at a
// second or two.

#include "kernforge/elementwise.cuh"

// W is what elements are widened to: double for double, else float.
template <class W>
struct ScaledRelu {
  W scale;
  __device__ W operator()(W v) const {
    return (v < 0 ? 0 : v) * scale;  // a NaN stays one
  }
};

// `count` elements that lie side by side, asynchronously on the stream; y may be x.
cudaError_t __PYTHON_NAME___launch(const void* x, void* y, double scale, kernforge::DType dtype,
                                   int64_t count, cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const ScaledRelu<W> op{static_cast<W>(scale)};
    return kernforge::elementwise<T>(op, count, stream, y, x);
  });
}
