// SPDX-License-Identifier: Apache-2.0
//
// gelu(x @ weight.T + bias) in bfloat16 by CUTLASS, GELU by tanh: a peer of kernels/linear-gelu.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace cutlass_linear_gelu {

// x is [rows, depth], weight [columns, depth], bias [columns], y [rows, columns], all contiguous.
struct Problem {
  const void *x, *weight, *bias;
  void* y;
  int rows, depth, columns;
  int swizzle;  // tiles side by side that run at one time
  int multiprocessors;
};

// Bytes of memory that a kernel wants beside, and the call itself, asynchronous on the stream.
struct Kernel {
  int64_t (*workspace)(const Problem&);
  cudaError_t (*launch)(const Problem&, void* workspace, cudaStream_t stream);
};

extern const Kernel cooperative_128x256, pingpong_128x128, pingpong_64x256;

}  // namespace cutlass_linear_gelu
