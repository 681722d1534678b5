// SPDX-License-Identifier: Apache-2.0
//
// y = gelu(x w^T + bias): what the launchers, the CPU path and the binding share. No torch header.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace linear_gelu {

using kernforge::DType;

// z / 2 * (1 + tanh(sqrt(2 / pi) * (z + 0.044715 z^3))), or z times the normal distribution
// function.
enum class Formula { kTanh, kErf };

// x [rows, depth] and w [columns, depth], of which each row lies side by side and a row begins
// `x_stride` (`w_stride`) elements after the one before; bias [columns] or nullptr; results
// [rows, columns] without gaps. z is x w^T + bias, rounded to the type, or nullptr: not kept.
struct Linear {
  const void *x, *w, *bias;
  void *y, *z;
  int64_t rows, columns, depth, x_stride, w_stride;
};

// dz = dy * gelu'(z) for matrices [rows, columns] without gaps, and the sums of its columns, which
// are the gradient of the bias: nullptr where they are not wanted.
struct Slope {
  const void *dy, *z;
  void *dz, *sums;
  int64_t rows, columns;
};

// GELU, in place where z is y, and its gradient, of n elements side by side.
void gelu_cpu(DType dtype, Formula formula, const void* z, void* y, int64_t n);
void slope_cpu(DType dtype, Formula formula, const void* dy, const void* z, void* dz, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

// Who computes: linear_gelu.cu has the table.
enum class Path {
  kHopper,   // tensor cores of compute capability 9.0 by wgmma
  kFewRows,  // for reading w once
  kTorch,    // torch's linear, then `gelu_launch`
};

// `tf32`: float32 may be multiplied as tf32. Of the current device.
cudaError_t path_of(DType dtype, bool tf32, const Linear& of, Path* path);

// By one of the first two paths, on the current device, asynchronously on the stream. Each size is
// below 2^31.
cudaError_t linear_launch(DType dtype, Formula formula, bool tf32, const Linear& of, Path path,
                          cudaStream_t stream);

// GELU, in place where z is y, of n elements side by side.
cudaError_t gelu_launch(DType dtype, Formula formula, const void* z, void* y, int64_t n,
                        cudaStream_t stream);

// How many doubles of memory `slope_launch` takes as `scratch`; 0 without sums.
int64_t slope_scratch(const Slope& of);
cudaError_t slope_launch(DType dtype, Formula formula, const Slope& of, void* scratch,
                         cudaStream_t stream);

#endif

}  // namespace linear_gelu
