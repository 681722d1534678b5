// SPDX-License-Identifier: Apache-2.0
//
// out = a + b: what the launchers, the CPU path and the binding share. No torch header in here.
//
// Half precisions are widened to float32 and rounded once, so the bits are torch's.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace vector_add {

using kernforge::DType;

// On what elements are widened to.
struct Add {
  template <class W>
  KERNFORGE_HOST_DEVICE W operator()(W a, W b) const {
    return a + b;
  }
};

// n elements that lie side by side, at any alignment of their type.
void add_cpu(DType dtype, const void* a, const void* b, void* out, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream. Nothing is launched for n == 0.
cudaError_t add_launch(DType dtype, const void* a, const void* b, void* out, int64_t n,
                       cudaStream_t stream);
#endif

}  // namespace vector_add
