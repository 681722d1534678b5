// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number: what the launchers, the CPU path and the binding share. No torch header.
//
//   forward   y = alpha * (x < 0 ? 0 : x)          a NaN stays one
//   backward  dx = x <= 0 ? 0 : alpha * dy          as torch: 0 where x is 0, dy where x is NaN
//
// Half precisions are widened to float32 and rounded once. The ReLU itself never rounds, so the
// result has the same bits as torch.relu(x) * alpha.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"
#include "kernforge/strides.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace relu_scale {

using kernforge::DType;

// On what elements are widened to, W.
template <class W>
struct Forward {
  W alpha;
  KERNFORGE_HOST_DEVICE W operator()(W x) const { return (x < 0 ? 0 : x) * alpha; }
};
template <class W>
struct Backward {
  W alpha;
  KERNFORGE_HOST_DEVICE W operator()(W dy, W x) const {
    const W scaled = dy * alpha;
    return x <= 0 ? 0 : scaled;
  }
};

// n elements that lie side by side; y may be x, and dx may be dy or x.
void forward_cpu(DType dtype, const void* x, void* y, double alpha, int64_t n);
void backward_cpu(DType dtype, const void* dy, const void* x, void* dx, double alpha, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream. Nothing is launched for n == 0.
// What is read lies side by side, or by strides beside a result that may not be an input then.
cudaError_t forward_launch(DType dtype, const void* x, void* y, double alpha, int64_t n,
                           cudaStream_t stream, const kernforge::Strides<1>* strides = nullptr);
cudaError_t backward_launch(DType dtype, const void* dy, const void* x, void* dx, double alpha,
                            int64_t n, cudaStream_t stream,
                            const kernforge::Strides<2>* strides = nullptr);
#endif

}  // namespace relu_scale
