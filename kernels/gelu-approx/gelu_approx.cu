// SPDX-License-Identifier: Apache-2.0
//
// GELU by its tanh formula on NVIDIA GPUs, forward and backward; formulas in gelu_approx.h.
//
// Bound by memory: one read and one write an element (backward: two reads), which leaves an H200
// some 55 instructions for each float32 and 27 for each half. A thread takes one pack of 16 bytes
// or two. // Tensors of which one does not start on 16 bytes go element by element, four a thread,
// coalesced all the same.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "early.cuh"
#include "gelu_approx.h"

namespace gelu_approx {
namespace {

// While there are no more threads than this, each takes half a pack: less one after the other.
constexpr int64_t kFew = 1 << 16;
// Bytes of a tensor from which on, and up to which, two packs a thread are faster for one input.
constexpr int64_t kTwoFrom = 16 << 20, kTwoTo = 256 << 20;

template <class T>
using widened_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ float widen(float v) { return v; }
__device__ __forceinline__ double widen(double v) { return v; }
__device__ __forceinline__ float widen(__half v) { return __half2float(v); }
__device__ __forceinline__ float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

template <class T>
__device__ __forceinline__ T narrow(widened_t<T> v) {
  if constexpr (sizeof(T) >= 4) {
    return v;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(v);
  } else {
    return __float2bfloat16_rn(v);
  }
}

__device__ __forceinline__ float exp2_ftz(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}

__device__ __forceinline__ float reciprocal_ftz(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// From here on exp(-2 u) is 0 in the type that computes, and s is 0 or 1.
template <class W>
constexpr W kFar = sizeof(W) == 4 ? 16 : 40;

// What both directions need of one x: e = exp(-2 |u|), the reciprocal of 1 + e, and x within kFar.
template <class W>
struct Parts {
  W e, r, near;
  bool negative;

  __device__ __forceinline__ W s() const { return negative ? e * r : r; }
};

// Comparisons that a NaN fails, so that it stays.
template <class W>
__device__ __forceinline__ W within(W x) {
  return x > kFar<W> ? kFar<W> : x < -kFar<W> ? -kFar<W> : x;
}

// In double: all digits but the last few.
template <class T, std::enable_if_t<std::is_same_v<T, double>, int> = 0>
__device__ __forceinline__ Parts<double> parts(double x) {
  const double near = within(x), a = fabs(near);
  const double e = exp2(a * fma(kExponent * kCubic, a * a, kExponent));
  return {e, 1 / (1 + e), near, x < 0};
}

// For the half types: some units in the 22nd place.
template <class T, std::enable_if_t<sizeof(T) == 2, int> = 0>
__device__ __forceinline__ Parts<float> parts(float x) {
  const float near = within(x), a = fabsf(near);
  constexpr float kFirst = kExponent, kThird = kExponent * kCubic;
  const float e = exp2_ftz(a * fmaf(kThird, a * a, kFirst));
  return {e, reciprocal_ftz(1 + e), near, x < 0};
}

// In float32: an exponent of 30 that is rounded once is 2^-20 off, and exp2 of it as much. So what
// the two products lose is kept (`lost`), nearly all of it while the cubic term is the smaller one.
template <class T, std::enable_if_t<std::is_same_v<T, float>, int> = 0>
__device__ __forceinline__ Parts<float> parts(float x) {
  const float near = within(x), a = fabsf(near);
  constexpr float kFirst = kExponent, kThird = kExponent * kCubic;
  constexpr float kLn2 = 0.693147180559945309;
  const float square = a * a;
  const float factor = fmaf(kThird, square, kFirst);
  const float t = a * factor;
  const float lost = fmaf(a, fmaf(kThird, square, kFirst - factor), fmaf(a, factor, -t));
  const float rough = exp2_ftz(t);
  const float e = fmaf(rough, lost * kLn2, rough);
  return {e, reciprocal_ftz(1 + e), near, x < 0};
}

template <class T>
struct Forward {
  using type = T;
  static constexpr int kInputs = 1;
  const T* in[1];
  T* out;

  __device__ __forceinline__ T operator()(const T (&given)[1]) const {
    using W = widened_t<T>;
    const W x = widen(given[0]);
    const auto p = parts<T>(x);
    return narrow<T>((x < -kFar<W> ? -kFar<W> : x) * p.s());
  }
};

template <class T>
struct Backward {
  using type = T;
  static constexpr int kInputs = 2;
  const T* in[2];  // dy, x
  T* out;

  __device__ __forceinline__ T operator()(const T (&given)[2]) const {
    using W = widened_t<T>;
    const auto p = parts<T>(widen(given[1]));
    constexpr W kFirst = kSlope, kThird = 3 * kSlope * kCubic;
    const W slope = fma(kThird * p.near, p.near, kFirst);
    return narrow<T>(widen(given[0]) * (p.s() + p.near * slope * (p.e * p.r * p.r)));
  }
};

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

// n elements in packs of kWidth, kPacks of them a thread and a block apart; the elements after the
// last whole pack are the last block's.
template <class Op, class Index, int kThreads, int kWidth, int kPacks>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const Op op, Index n) {
  using P = Pack<typename Op::type, kWidth>;
  early::wait();
  const Index packs = n / kWidth;
  const Index first = Index{blockIdx.x} * (kThreads * kPacks) + threadIdx.x;
  P in[kPacks][Op::kInputs];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const Index at = first + i * kThreads;
    if (at >= packs) break;
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) in[i][k] = reinterpret_cast<const P*>(op.in[k])[at];
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const Index at = first + i * kThreads;
    if (at >= packs) break;
    P out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      typename Op::type given[Op::kInputs];
#pragma unroll
      for (int k = 0; k < Op::kInputs; ++k) given[k] = in[i][k].at[j];
      out.at[j] = op(given);
    }
    reinterpret_cast<P*>(op.out)[at] = out;
  }
  const Index rest = packs * kWidth + threadIdx.x;
  if (kWidth > 1 && blockIdx.x == gridDim.x - 1 && rest < n) {
    typename Op::type given[Op::kInputs];
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) given[k] = op.in[k][rest];
    op.out[rest] = op(given);
  }
}

template <class Op, class Index, int kThreads, int kWidth, int kPacks>
cudaError_t launch_packs(const Op& op, int64_t n, cudaStream_t stream) {
  constexpr int64_t kBlock = int64_t{kThreads} * kPacks;
  const int64_t packs = n / kWidth;
  const int64_t blocks = packs == 0 ? 1 : (packs + kBlock - 1) / kBlock;
  return early::launch(elementwise_kernel<Op, Index, kThreads, kWidth, kPacks>, blocks, kThreads,
                       stream, op, n);
}

template <class Op>
cudaError_t launch(const Op& op, int64_t n, cudaStream_t stream) {
  constexpr int kWidth = 16 / sizeof(typename Op::type);
  if (n == 0) return cudaSuccess;
  uintptr_t places = reinterpret_cast<uintptr_t>(op.out);
  for (const auto* in : op.in) places |= reinterpret_cast<uintptr_t>(in);
  if (places % 16 != 0) return launch_packs<Op, int64_t, 256, 1, 4>(op, n, stream);
  if (n / (kWidth / 2) <= kFew) {
    return launch_packs<Op, unsigned, 256, kWidth / 2, 1>(op, n, stream);
  }
  const int64_t bytes = n * static_cast<int64_t>(sizeof(typename Op::type));
  if (bytes < kTwoFrom || Op::kInputs > 1) {
    return launch_packs<Op, int64_t, 256, kWidth, 1>(op, n, stream);
  }
  if (bytes < kTwoTo) return launch_packs<Op, int64_t, 128, kWidth, 2>(op, n, stream);
  return launch_packs<Op, int64_t, 128, kWidth, 1>(op, n, stream);
}

template <class T>
cudaError_t forward(const void* x, void* y, int64_t n, cudaStream_t stream) {
  return launch(Forward<T>{{static_cast<const T*>(x)}, static_cast<T*>(y)}, n, stream);
}

template <class T>
cudaError_t backward(const void* dy, const void* x, void* dx, int64_t n, cudaStream_t stream) {
  const Backward<T> op{{static_cast<const T*>(dy), static_cast<const T*>(x)}, static_cast<T*>(dx)};
  return launch(op, n, stream);
}

}  // namespace

cudaError_t forward_launch(Type type, const void* x, void* y, int64_t n, cudaStream_t stream) {
  switch (type) {
    case Type::kFloat:
      return forward<float>(x, y, n, stream);
    case Type::kHalf:
      return forward<__half>(x, y, n, stream);
    case Type::kBfloat16:
      return forward<__nv_bfloat16>(x, y, n, stream);
    case Type::kDouble:
      return forward<double>(x, y, n, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t backward_launch(Type type, const void* dy, const void* x, void* dx, int64_t n,
                            cudaStream_t stream) {
  switch (type) {
    case Type::kFloat:
      return backward<float>(dy, x, dx, n, stream);
    case Type::kHalf:
      return backward<__half>(dy, x, dx, n, stream);
    case Type::kBfloat16:
      return backward<__nv_bfloat16>(dy, x, dx, n, stream);
    case Type::kDouble:
      return backward<double>(dy, x, dx, n, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace gelu_approx
