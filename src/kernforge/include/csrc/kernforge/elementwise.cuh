// SPDX-License-Identifier: Apache-2.0
//
// A formula over the elements of tensors of one dtype on NVIDIA GPUs, with one to three inputs. The
// result is dense; inputs that do not lie like it are read by their strides (strided_elementwise).
//
//   template <class T>
//   struct Scale {
//     kernforge::widened_t<T> factor;
//     __device__ kernforge::widened_t<T> operator()(kernforge::widened_t<T> x) const {
//       return x * factor;
//     }
//   };
//   kernforge::elementwise<float>(Scale<float>{2}, num_items, stream, y, x);
//
// Bound by memory. Where all tensors start on 16 bytes a thread loads vectors of 16 bytes, as
// DefaultPolicy says by default. Else it takes four elements, a block apart, so that a warp's loads
// are coalesced all the same. Half types are widened to float32 and rounded once. An input may be
// the output. The kernel is launched as pdl.cuh says.
//
// A kernel with a table of its own hands in a selector that chooses by bytes of one tensor, element
// size and device:
//
//   struct PolicySelector {
//     template <class T, int kInputs, class Launch>
//     static cudaError_t select(int64_t bytes, const kernforge::Device& device, Launch launch) {
//       return launch(kernforge::ElementwisePolicy<128, 2 * kernforge::kVectorLength<T>>{});
//     }
//   };
//   kernforge::elementwise<float, PolicySelector>(...);

#pragma once

#include <cstdint>

#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "kernforge/strides.h"

namespace kernforge {

// How the work is cut, in the words of CUB's policies. Offset_ counts the elements of a tensor.
template <int kBlockThreads_, int kItemsPerThread_, int kVectorLoadLength_, class Offset_ = int64_t>
struct ElementwisePolicy {
  static constexpr int kBlockThreads = kBlockThreads_;
  static constexpr int kItemsPerThread = kItemsPerThread_;
  static constexpr int kVectorLoadLength = kVectorLoadLength_;
  using Offset = Offset_;

  static_assert(kBlockThreads % 32 == 0 && kBlockThreads <= 1024,
                "a block is whole warps, at most 32 of them");
  static_assert(kVectorLoadLength >= 1 && kItemsPerThread >= 1, "a thread has something to do");
  static_assert(kItemsPerThread % kVectorLoadLength == 0, "a thread has whole vectors");
  static_assert(kVectorLoadLength <= kBlockThreads,
                "the last block has a thread for each element after the last whole vector");
};

// What a kernel works on. Op_ is the formula.
template <class T, int kInputs_, class Op_, class Offset>
struct Operands {
  using Element = T;
  static constexpr int kInputs = kInputs_;
  static_assert(kInputs >= 1 && kInputs <= 3, "a formula has one to three inputs");
  const T* in[kInputs];
  T* out;
  Offset num_items;
  Op_ op;
};

namespace {

template <class Op, class W>
__device__ __forceinline__ W call(const Op& op, const W (&x)[1]) {
  return op(x[0]);
}
template <class Op, class W>
__device__ __forceinline__ W call(const Op& op, const W (&x)[2]) {
  return op(x[0], x[1]);
}
template <class Op, class W>
__device__ __forceinline__ W call(const Op& op, const W (&x)[3]) {
  return op(x[0], x[1], x[2]);
}

}  // namespace

// Vectors of a thread lie a block apart, and all are loaded before the first is computed. The
// elements after the last whole vector are the last block's. One parameter and no anonymous
// namespace: pdl.cuh says why a kernel's name is short.
template <class Policy, class Operands>
static __global__ void __launch_bounds__(Policy::kBlockThreads)
    elementwise_kernel(const Operands operands) {
  using T = typename Operands::Element;
  using Offset = typename Policy::Offset;
  constexpr int kInputs = Operands::kInputs;
  constexpr int kLength = Policy::kVectorLoadLength;
  constexpr int kVectors = Policy::kItemsPerThread / kLength;
  constexpr int kThreads = Policy::kBlockThreads;
  using Vector = AlignedVector<T, kLength>;
  grid_dependency_synchronize();
  const Offset vectors = operands.num_items / kLength;
  const Offset first = Offset{blockIdx.x} * (kThreads * kVectors) + threadIdx.x;
  Vector loaded[kVectors][kInputs];
  // `break` and not `if (at < vectors)`: 5 % of 2 x 16 MiB on an H200, by other registers alone.
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const Offset at = first + i * kThreads;
    if (at >= vectors) break;
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      loaded[i][k] = reinterpret_cast<const Vector*>(operands.in[k])[at];
    }
  }
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const Offset at = first + i * kThreads;
    if (at >= vectors) break;
    Vector result;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      widened_t<T> x[kInputs];
#pragma unroll
      for (int k = 0; k < kInputs; ++k) x[k] = widen(loaded[i][k].at[j]);
      result.at[j] = narrow<T>(call(operands.op, x));
    }
    reinterpret_cast<Vector*>(operands.out)[at] = result;
  }
  const Offset rest = vectors * kLength + threadIdx.x;
  if (kLength > 1 && blockIdx.x == gridDim.x - 1 && rest < operands.num_items) {
    widened_t<T> x[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) x[k] = widen(operands.in[k][rest]);
    operands.out[rest] = narrow<T>(call(operands.op, x));
  }
}

namespace {

template <class Policy, class T, int kInputs, class Op>
cudaError_t launch_elementwise(const Device& device, cudaStream_t stream, const Op& op, T* out,
                               const T* const (&in)[kInputs], int64_t num_items) {
  constexpr int64_t kVectors =
      int64_t{Policy::kBlockThreads} * Policy::kItemsPerThread / Policy::kVectorLoadLength;
  using Offset = typename Policy::Offset;
  if (static_cast<int64_t>(static_cast<Offset>(num_items)) != num_items) {
    return cudaErrorInvalidValue;  // the policy is for fewer elements
  }
  Operands<T, kInputs, Op, Offset> operands = {{}, out, static_cast<Offset>(num_items), op};
  for (int k = 0; k < kInputs; ++k) operands.in[k] = in[k];
  const int64_t vectors = num_items / Policy::kVectorLoadLength;
  const int64_t blocks = vectors == 0 ? 1 : (vectors + kVectors - 1) / kVectors;
  return launch(device, stream, elementwise_kernel<Policy, decltype(operands)>, blocks,
                Policy::kBlockThreads, operands);
}

}  // namespace

// By the bytes of one tensor, as measured on an H200:
//
//   tensors              threads a block, vectors a thread   why
//   below 16 MiB         256, 1
//   16 to 256 MiB        128, 2                              5 % faster (gelu-approx, 16 MiB)
//   from 256 MiB         128, 1                              99.9 % of a copy; 4 vectors 96 %
//   two inputs           256, 1                              2 vectors are slower (gelu-approx)
struct DefaultPolicy {
  template <class T, int kInputs, class Launch>
  static cudaError_t select(int64_t bytes, const Device&, const Launch& launch) {
    constexpr int kVector = kVectorLength<T>;
    if constexpr (kInputs == 1) {
      if (bytes >= 256 << 20) return launch(ElementwisePolicy<128, kVector, kVector>{});
      if (bytes >= 16 << 20) return launch(ElementwisePolicy<128, 2 * kVector, kVector>{});
    }
    return launch(ElementwisePolicy<256, kVector, kVector>{});
  }
};

namespace {

// out[i] = op(in[i]...) for num_items elements of type T, on the current device, asynchronously on
// the stream. Nothing is launched for 0.
template <class T, class PolicySelector = DefaultPolicy, class Op, class... In>
cudaError_t elementwise(const Op& op, int64_t num_items, cudaStream_t stream, void* out,
                        const In*... in) {
  if (num_items == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = current_device(&device)) return error;
  const T* const inputs[] = {static_cast<const T*>(in)...};
  const auto with_policy = [&](auto policy) {
    return launch_elementwise<decltype(policy), T>(device, stream, op, static_cast<T*>(out), inputs,
                                                   num_items);
  };
  const uintptr_t addresses =
      (reinterpret_cast<uintptr_t>(out) | ... | reinterpret_cast<uintptr_t>(in));
  if (addresses % kVectorBytes != 0) return with_policy(ElementwisePolicy<256, 4, 1>{});
  const int64_t bytes = num_items * static_cast<int64_t>(sizeof(T));
  return PolicySelector::template select<T, sizeof...(In)>(bytes, device, with_policy);
}

}  // namespace

// Divides a number below 2^31 by one that the host knows: Granlund and Montgomery, Division by
// Invariant Integers using Multiplication, 1994.
struct Divisor {
  uint32_t by, multiplier;
  int shift;

  explicit Divisor(uint32_t by = 1) : by(by), shift(0) {
    while (uint64_t{1} << shift < by) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << shift) - by << 32) / by + 1);
  }
  __device__ __forceinline__ uint32_t divide(uint32_t number) const {
    return (__umulhi(number, multiplier) + number) >> shift;
  }
};

template <class T, int kInputs_, class Op_>
struct StridedOperands {
  using Element = T;
  static constexpr int kInputs = kInputs_;
  const T* in[kInputs];
  T* out;
  uint32_t num_items;
  Op_ op;
  Strides<kInputs> layout;
  Divisor sizes[Strides<kInputs>::kMaxDims];
};

// A thread takes elements that lie a block apart, so that what lies side by side is coalesced.
template <int kThreads, int kItems, class Operands>
static __global__ void __launch_bounds__(kThreads) strided_kernel(const Operands operands) {
  using T = typename Operands::Element;
  constexpr int kInputs = Operands::kInputs;
  grid_dependency_synchronize();
  const uint32_t first = blockIdx.x * (kThreads * kItems) + threadIdx.x;
  T loaded[kItems][kInputs];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    uint32_t rest = first + i * kThreads;
    if (rest >= operands.num_items) break;
    uint32_t offsets[kInputs] = {};
#pragma unroll
    for (int d = 0; d < operands.layout.kMaxDims; ++d) {
      if (d == operands.layout.dims) break;
      const uint32_t next = operands.sizes[d].divide(rest);
      const uint32_t here = rest - next * operands.sizes[d].by;
#pragma unroll
      for (int k = 0; k < kInputs; ++k) offsets[k] += here * operands.layout.strides[k][d];
      rest = next;
    }
#pragma unroll
    for (int k = 0; k < kInputs; ++k) loaded[i][k] = operands.in[k][offsets[k]];
  }
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const uint32_t at = first + i * kThreads;
    if (at >= operands.num_items) break;
    widened_t<T> x[kInputs];
#pragma unroll
    for (int k = 0; k < kInputs; ++k) x[k] = widen(loaded[i][k]);
    operands.out[at] = narrow<T>(call(operands.op, x));
  }
}

namespace {

// The same of inputs with a layout that fits. `out` may not be an input.
template <class T, class Op, class... In>
cudaError_t strided_elementwise(const Op& op, int64_t num_items,
                                const Strides<sizeof...(In)>& layout, cudaStream_t stream,
                                void* out, const In*... in) {
  if (num_items == 0) return cudaSuccess;
  constexpr int kThreads = 128, kItems = 4;
  Device device;
  if (const cudaError_t error = current_device(&device)) return error;
  StridedOperands<T, sizeof...(In), Op> operands = {{static_cast<const T*>(in)...},
                                                    static_cast<T*>(out),
                                                    static_cast<uint32_t>(num_items),
                                                    op,
                                                    layout};
  for (int d = 0; d < layout.dims; ++d) operands.sizes[d] = Divisor(layout.sizes[d]);
  const int64_t blocks = (num_items + kThreads * kItems - 1) / (kThreads * kItems);
  return launch(device, stream, strided_kernel<kThreads, kItems, decltype(operands)>, blocks,
                kThreads, operands);
}

}  // namespace
}  // namespace kernforge
