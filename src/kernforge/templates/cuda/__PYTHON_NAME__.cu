// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on NVIDIA GPUs. Bound by memory: each thread moves 16 bytes at a time where
// both arrays are aligned for it, else one element.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "__PYTHON_NAME__.h"

namespace __PYTHON_NAME___kernel {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 65535;  // the loop in the kernel takes what is left

__device__ float to_float(float v) { return v; }
__device__ float to_float(__half v) { return __half2float(v); }
__device__ float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
__device__ T from_float(float v);
template <>
__device__ float from_float<float>(float v) {
  return v;
}
template <>
__device__ __half from_float<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T values[kCount];
};

// kCount elements a step; the last few that fill no pack go one by one.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    scaled_relu_kernel(const T* x, T* y, float scale, int64_t count) {
  const auto one = [scale](T v) {
    const float f = to_float(v);
    return from_float<T>((f < 0.0f ? 0.0f : f) * scale);  // a NaN stays one
  };
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  const int64_t packs = count / kCount;
  for (int64_t i = first; i < packs; i += step) {
    Pack<T, kCount> p = reinterpret_cast<const Pack<T, kCount>*>(x)[i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) p.values[k] = one(p.values[k]);
    reinterpret_cast<Pack<T, kCount>*>(y)[i] = p;
  }
  for (int64_t i = packs * kCount + first; i < count; i += step) y[i] = one(x[i]);
}

template <typename T>
cudaError_t launch_typed(const void* x, void* y, float scale, int64_t count, cudaStream_t stream) {
  constexpr int kCount = 16 / sizeof(T);
  const bool aligned = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  const int64_t items = aligned ? (count + kCount - 1) / kCount : count;
  const int64_t full = (items + kThreads - 1) / kThreads;
  const auto blocks = static_cast<unsigned>(full < kMostBlocks ? full : kMostBlocks);
  const T* from = static_cast<const T*>(x);
  T* to = static_cast<T*>(y);
  if (aligned) {
    scaled_relu_kernel<T, kCount><<<blocks, kThreads, 0, stream>>>(from, to, scale, count);
  } else {
    scaled_relu_kernel<T, 1><<<blocks, kThreads, 0, stream>>>(from, to, scale, count);
  }
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch(const void* x, void* y, float scale, DType dtype, int64_t count,
                   cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (dtype) {
    case DType::kFloat32:
      return launch_typed<float>(x, y, scale, count, stream);
    case DType::kFloat16:
      return launch_typed<__half>(x, y, scale, count, stream);
    case DType::kBFloat16:
      return launch_typed<__nv_bfloat16>(x, y, scale, count, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace __PYTHON_NAME___kernel
