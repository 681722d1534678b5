// SPDX-License-Identifier: Apache-2.0
//
// LayerNorm and RMSNorm of rows, and their gradients: what the launchers, the CPU path and the
// binding share. No torch header.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace layer_norm {

using kernforge::DType;

// y = (s - mean) / sqrt(variance + eps) * weight + bias for each row of s = x + residual. RMSNorm
// has 0 for the mean.
//
// x and residual [rows, width], of which each row lies side by side and a row begins `x_stride`
// (`residual_stride`) elements after the one before; weight and bias [width]; y and sum
// [rows, width] without gaps; statistics, in float or, of doubles, in double: of LayerNorm the
// means [rows] and after them, of both, 1 / sqrt(variance + eps) [rows]. nullptr: residual, weight
// or bias that is not there; sum that is not wanted, else s rounded to the type, and the rounded s
// is what is normalized; statistics that are not kept.
struct Forward {
  const void *x, *residual, *weight, *bias;
  void *y, *sum, *statistics;
  int64_t rows, width, x_stride, residual_stride;
  double eps;
  bool rms;
  bool float_weights;  // weight and bias are float, whatever the type of x
};

// The gradients of x (and of residual, which has the same), weight and bias. dy and dsum, that of
// y and of the sum, and x (the sum, where there is one) are [rows, width] without gaps. nullptr:
// dsum that is not there; dweight and dbias, [width], that are not wanted.
struct Backward {
  const void *dy, *dsum, *x, *weight, *statistics;
  void *dx, *dweight, *dbias;
  int64_t rows, width;
  bool rms;
  bool float_weights;
};

// Of rows side by side that belong to all of `of`.
void forward_cpu(DType dtype, const Forward& of, int64_t first, int64_t last);
void input_gradient_cpu(DType dtype, const Backward& of, int64_t first, int64_t last);
// The columns from `first` to `last` of the gradients of weight and bias.
void weight_gradient_cpu(DType dtype, const Backward& of, int64_t first, int64_t last);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

// On the current device, asynchronously on the stream. Nothing is launched where nothing is to be
// written.
cudaError_t forward_launch(DType dtype, const Forward& of, cudaStream_t stream);

// How many floats (of doubles: doubles) of memory `backward_launch` takes as `scratch`.
cudaError_t backward_scratch(DType dtype, const Backward& of, int64_t* count);
cudaError_t backward_launch(DType dtype, const Backward& of, void* scratch, cudaStream_t stream);

#endif

}  // namespace layer_norm
