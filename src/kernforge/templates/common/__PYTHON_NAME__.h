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

// [gradient]
// dx = x > 0 ? grad * scale : 0, where grad is the gradient of y.
void run_cpu_backward(const void* grad, const void* x, void* dx, double scale, DType dtype,
                      int64_t count);

// [end]
#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream.
cudaError_t launch(const void* x, void* y, double scale, DType dtype, int64_t count,
                   cudaStream_t stream);
// [gradient]
cudaError_t launch_backward(const void* grad, const void* x, void* dx, double scale, DType dtype,
                            int64_t count, cudaStream_t stream);
// [end]
#endif

}  // namespace __PYTHON_NAME___kernel
