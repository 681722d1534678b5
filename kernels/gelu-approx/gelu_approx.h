// SPDX-License-Identifier: Apache-2.0
//
// GELU by its tanh formula: what the launchers, the CPU path and the binding share. No torch
// header.
//
//   forward   y = x / 2 * (1 + tanh(u)),  u = sqrt(2 / pi) * (x + 0.044715 x^3)
//   backward  dx = dy * (s + x * s * (1 - s) * 2 u'),  s = 1 / (1 + exp(-2 u))
//
// 1 + tanh(u) is 2 s, and s loses nothing where 1 + tanh(u) cancels. With e = exp(-2 |u|), which
// never overflows, s is 1 / (1 + e) or e / (1 + e), and s * (1 - s) is e / (1 + e)^2. From |x| = 16
// on e is 0 in float32, and x^3 is not formed from there, so no infinity meets a zero.
//
// Limits: y and y' are -0 and 0 at -inf, inf and 1 at inf. A NaN stays one.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"
#include "kernforge/strides.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace gelu_approx {

using kernforge::DType;

constexpr double kCubic = 0.044715;
// -2 sqrt(2 / pi) log2(e): exp(-2 u) is exp2(kExponent * (x + kCubic * x^3)).
constexpr double kExponent = -2.3022081981443249;
constexpr double kSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)

// n elements that lie side by side, at any alignment of their type; y may be x, dx may be dy or x.
void forward_cpu(DType dtype, const void* x, void* y, int64_t n);
void backward_cpu(DType dtype, const void* dy, const void* x, void* dx, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream. Nothing is launched for n == 0.
// What is read lies side by side, or by strides beside a result that may not be an input then.
cudaError_t forward_launch(DType dtype, const void* x, void* y, int64_t n, cudaStream_t stream,
                           const kernforge::Strides<1>* strides = nullptr);
cudaError_t backward_launch(DType dtype, const void* dy, const void* x, void* dx, int64_t n,
                            cudaStream_t stream, const kernforge::Strides<2>* strides = nullptr);
#endif

}  // namespace gelu_approx
