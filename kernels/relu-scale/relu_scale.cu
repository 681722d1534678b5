// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number on NVIDIA GPUs, forward and backward; formulas in relu_scale.h.
//
// Bound by memory: one read and one write an element (backward: two reads). A thread takes one pack
// of 16 bytes, or two: four were 96 % of a copy on an H200 (README.md). Tensors of which one does
// not start on 16 bytes go element by element, four a thread, coalesced all the same.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "early.cuh"
#include "relu_scale.h"

namespace relu_scale {
namespace {

// Bytes of a tensor from which on, and up to which, two packs a thread are faster for one input.
constexpr int64_t kTwoFrom = 16 << 20, kTwoTo = 256 << 20;

template <class T>
struct Widened {
  using type = float;
};
template <>
struct Widened<double> {
  using type = double;
};
template <class T>
using widened_t = typename Widened<T>::type;

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

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

template <class T>
struct Forward {
  using type = T;
  static constexpr int kInputs = 1;
  const T* in[1];
  T* out;
  widened_t<T> alpha;

  __device__ __forceinline__ T operator()(const T (&given)[1]) const {
    const auto x = widen(given[0]);
    return narrow<T>((x < 0 ? 0 : x) * alpha);
  }
};

template <class T>
struct Backward {
  using type = T;
  static constexpr int kInputs = 2;
  const T* in[2];  // dy, x
  T* out;
  widened_t<T> alpha;

  __device__ __forceinline__ T operator()(const T (&given)[2]) const {
    return narrow<T>(widen(given[1]) <= 0 ? widened_t<T>{0} : widen(given[0]) * alpha);
  }
};

template <class Op, class P, int kWidth>
__device__ __forceinline__ P apply(const Op& op, const P (&in)[Op::kInputs]) {
  P out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    typename Op::type given[Op::kInputs];
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) given[k] = in[k].at[j];
    out.at[j] = op(given);
  }
  return out;
}

// n elements in packs of kWidth; the elements after the last whole pack are the last block's.
template <class Op, int kThreads, int kWidth, int kPacks>
__global__ void __launch_bounds__(kThreads) elementwise_kernel(const Op op, int64_t n) {
  using T = typename Op::type;
  using P = Pack<T, kWidth>;
  early::wait();
  const int64_t packs = n / kWidth;
  const int64_t first = int64_t{blockIdx.x} * (kThreads * kPacks) + threadIdx.x;
  P in[kPacks][Op::kInputs];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < packs) {
#pragma unroll
      for (int k = 0; k < Op::kInputs; ++k) in[i][k] = reinterpret_cast<const P*>(op.in[k])[at];
    }
  }
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    const int64_t at = first + i * kThreads;
    if (at < packs) reinterpret_cast<P*>(op.out)[at] = apply<Op, P, kWidth>(op, in[i]);
  }
  const int64_t rest = packs * kWidth + threadIdx.x;
  if (kWidth > 1 && blockIdx.x == gridDim.x - 1 && rest < n) {
    T given[Op::kInputs];
#pragma unroll
    for (int k = 0; k < Op::kInputs; ++k) given[k] = op.in[k][rest];
    op.out[rest] = op(given);
  }
}

template <class Op, int kThreads, int kWidth, int kPacks>
cudaError_t launch_packs(const Op& op, int64_t n, cudaStream_t stream) {
  constexpr int64_t kBlock = int64_t{kThreads} * kPacks;
  const int64_t packs = n / kWidth;
  const int64_t blocks = packs == 0 ? 1 : (packs + kBlock - 1) / kBlock;
  return early::launch(elementwise_kernel<Op, kThreads, kWidth, kPacks>, blocks, kThreads, stream,
                       op, n);
}

template <class Op>
cudaError_t launch(const Op& op, int64_t n, cudaStream_t stream) {
  constexpr int kWidth = 16 / sizeof(typename Op::type);
  if (n == 0) return cudaSuccess;
  uintptr_t places = reinterpret_cast<uintptr_t>(op.out);
  for (const auto* in : op.in) places |= reinterpret_cast<uintptr_t>(in);
  if (places % 16 != 0) return launch_packs<Op, 256, 1, 4>(op, n, stream);
  const int64_t bytes = n * static_cast<int64_t>(sizeof(typename Op::type));
  if (bytes < kTwoFrom || Op::kInputs > 1) return launch_packs<Op, 256, kWidth, 1>(op, n, stream);
  if (bytes < kTwoTo) return launch_packs<Op, 128, kWidth, 2>(op, n, stream);
  return launch_packs<Op, 128, kWidth, 1>(op, n, stream);
}

template <class T>
cudaError_t forward(const void* x, void* y, double alpha, int64_t n, cudaStream_t stream) {
  return launch(
      Forward<T>{{static_cast<const T*>(x)}, static_cast<T*>(y), static_cast<widened_t<T>>(alpha)},
      n, stream);
}

template <class T>
cudaError_t backward(const void* dy, const void* x, void* dx, double alpha, int64_t n,
                     cudaStream_t stream) {
  return launch(Backward<T>{{static_cast<const T*>(dy), static_cast<const T*>(x)},
                            static_cast<T*>(dx),
                            static_cast<widened_t<T>>(alpha)},
                n, stream);
}

}  // namespace

cudaError_t forward_launch(Type type, const void* x, void* y, double alpha, int64_t n,
                           cudaStream_t stream) {
  switch (type) {
    case Type::kFloat:
      return forward<float>(x, y, alpha, n, stream);
    case Type::kHalf:
      return forward<__half>(x, y, alpha, n, stream);
    case Type::kBfloat16:
      return forward<__nv_bfloat16>(x, y, alpha, n, stream);
    case Type::kDouble:
      return forward<double>(x, y, alpha, n, stream);
  }
  return cudaErrorInvalidValue;
}

cudaError_t backward_launch(Type type, const void* dy, const void* x, void* dx, double alpha,
                            int64_t n, cudaStream_t stream) {
  switch (type) {
    case Type::kFloat:
      return backward<float>(dy, x, dx, alpha, n, stream);
    case Type::kHalf:
      return backward<__half>(dy, x, dx, alpha, n, stream);
    case Type::kBfloat16:
      return backward<__nv_bfloat16>(dy, x, dx, alpha, n, stream);
    case Type::kDouble:
      return backward<double>(dy, x, dx, alpha, n, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace relu_scale
