// SPDX-License-Identifier: Apache-2.0
//
// The element types in CUDA sources: conversions, and vectors that one instruction loads.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernforge/dtype.h"

namespace kernforge {
namespace {

template <class Run>
auto dispatch(DType dtype, const Run& run) {
  return dispatch_with<__half, __nv_bfloat16>(dtype, run);
}

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ double widen(double v) { return v; }
__device__ __forceinline__ float widen(__half v) { return __half2float(v); }
__device__ __forceinline__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

// Rounds once, to the nearest and to even.
template <class T>
__device__ __forceinline__ T narrow(widened_t<T> v) {
  return v;
}
template <>
__device__ __forceinline__ __half narrow<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ __forceinline__ __nv_bfloat16 narrow<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

// Bytes of the widest load, and what an address must be a multiple of for it.
constexpr int kVectorBytes = 16;

// Elements of the widest load.
template <class T>
constexpr int kVectorLength = kVectorBytes / sizeof(T);

template <class T, int kLength>
struct alignas(sizeof(T) * kLength) AlignedVector {
  static_assert((kLength & (kLength - 1)) == 0, "an alignment is a power of two");
  static_assert(sizeof(T) * kLength <= kVectorBytes, "a load has at most 16 bytes");
  T at[kLength];
};

}  // namespace
}  // namespace kernforge
