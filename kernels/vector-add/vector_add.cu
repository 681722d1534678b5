// SPDX-License-Identifier: Apache-2.0
//
// out = a + b on NVIDIA GPUs.
//
// Bound by memory: two reads and one write an element. A thread takes one pack of 16 bytes of
// each input. Tensors of which one does not start on 16 bytes go element by element, four a thread,
// coalesced all the same.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "early.cuh"
#include "vector_add.h"

namespace vector_add {
namespace {

constexpr int kThreads = 256;
// While there are no more threads than this, each takes 4 halves, not 8: less one after the other.
constexpr int64_t kFew = 1 << 16;

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ double plus(double a, double b) { return a + b; }
__device__ __forceinline__ __half plus(__half a, __half b) {
  return __float2half_rn(__half2float(a) + __half2float(b));
}
__device__ __forceinline__ __nv_bfloat16 plus(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

// n elements in packs of kWidth; the elements after the last whole pack are the last block's.
template <class T, class Index, int kWidth, int kPacks>
__global__ void __launch_bounds__(kThreads)
    add_kernel(const T* a, const T* b, T* __restrict__ out, Index n) {
  using P = Pack<T, kWidth>;
  early::wait();
  const Index packs = n / kWidth;
  const Index first = Index{blockIdx.x} * (kThreads * kPacks) + threadIdx.x;
  P left[kPacks], right[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const Index at = first + i * kThreads;
    if (at < packs) {
      left[i] = reinterpret_cast<const P*>(a)[at];
      right[i] = reinterpret_cast<const P*>(b)[at];
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const Index at = first + i * kThreads;
    if (at < packs) {
      P sum;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sum.at[j] = plus(left[i].at[j], right[i].at[j]);
      reinterpret_cast<P*>(out)[at] = sum;
    }
  }
  const Index rest = packs * kWidth + threadIdx.x;
  if (kWidth > 1 && blockIdx.x == gridDim.x - 1 && rest < n) out[rest] = plus(a[rest], b[rest]);
}

template <class T, class Index, int kWidth, int kPacks>
cudaError_t launch_packs(const T* a, const T* b, T* out, int64_t n, cudaStream_t stream) {
  constexpr int64_t kBlock = int64_t{kThreads} * kPacks;
  const int64_t packs = n / kWidth;
  const int64_t blocks = packs == 0 ? 1 : (packs + kBlock - 1) / kBlock;
  return early::launch(add_kernel<T, Index, kWidth, kPacks>, blocks, kThreads, stream, a, b, out,
                       n);
}

template <class T>
cudaError_t launch(const void* left, const void* right, void* to, int64_t n, cudaStream_t stream) {
  constexpr int kWidth = 16 / sizeof(T);
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  auto* out = static_cast<T*>(to);
  const uintptr_t places = reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) |
                           reinterpret_cast<uintptr_t>(out);
  if (n == 0) return cudaSuccess;
  if (places % 16 != 0) return launch_packs<T, int64_t, 1, 4>(a, b, out, n, stream);
  if (sizeof(T) == 2 && n / 4 <= kFew) return launch_packs<T, unsigned, 4, 1>(a, b, out, n, stream);
  return launch_packs<T, int64_t, kWidth, 1>(a, b, out, n, stream);
}

}  // namespace

cudaError_t add_launch(Type type, const void* a, const void* b, void* out, int64_t n,
                       cudaStream_t stream) {
  switch (type) {
    case Type::kFloat:
      return launch<float>(a, b, out, n, stream);
    case Type::kHalf:
      return launch<__half>(a, b, out, n, stream);
    case Type::kBfloat16:
      return launch<__nv_bfloat16>(a, b, out, n, stream);
    case Type::kDouble:
      return launch<double>(a, b, out, n, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace vector_add
