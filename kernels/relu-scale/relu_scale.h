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

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace relu_scale {

enum class Type { kFloat, kHalf, kBfloat16, kDouble };

// n elements that lie side by side; y may be x, and dx may be dy or x.
void forward_cpu(Type type, const void* x, void* y, double alpha, int64_t n);
void backward_cpu(Type type, const void* dy, const void* x, void* dx, double alpha, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream. Nothing is launched for n == 0.
cudaError_t forward_launch(Type type, const void* x, void* y, double alpha, int64_t n,
                           cudaStream_t stream);
cudaError_t backward_launch(Type type, const void* dy, const void* x, void* dx, double alpha,
                            int64_t n, cudaStream_t stream);
#endif

}  // namespace relu_scale
