// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale, element by element: what the kernels and the binding share.
// No torch header in here: that is what keeps a kernel's compile time at a second or two.

#pragma once

#include <cstdint>

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace __PYTHON_NAME___kernel {

enum class DType { kFloat32, kFloat16, kBFloat16 };

// Elements [begin, end) of two arrays of that type; y may be x. Threads may share one array.
void run_cpu(const void* x, void* y, float scale, DType dtype, int64_t begin, int64_t end);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// All `count` elements, on the current device, asynchronously on the stream.
cudaError_t launch(const void* x, void* y, float scale, DType dtype, int64_t count,
                   cudaStream_t stream);
#endif

}  // namespace __PYTHON_NAME___kernel
