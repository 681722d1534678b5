// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on NVIDIA GPUs. It includes no header of torch, so that it compiles in one
// or two seconds.

#include "kernforge/elementwise.cuh"

// W is the type of the computation: double for double, otherwise float.
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
