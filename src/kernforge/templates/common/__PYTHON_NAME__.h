// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale, element by element: declarations for the kernels and the binding.
// It includes no header of torch, so that a kernel compiles in one or two seconds.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace __PYTHON_NAME___kernel {

using kernforge::DType;

// Computes `count` consecutive elements; y may be x.
void run_cpu(const void* x, void* y, double scale, DType dtype, int64_t count);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream.
cudaError_t launch(const void* x, void* y, double scale, DType dtype, int64_t count,
                   cudaStream_t stream);
#endif

}  // namespace __PYTHON_NAME___kernel
