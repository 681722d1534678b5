// SPDX-License-Identifier: Apache-2.0
//
// How threads share a row: loads of 16 bytes past the L1 cache, and sums over a row's threads.

#pragma once

#include <cstdint>

#include "kernforge/dtype.cuh"
#include "layer_norm.h"

namespace layer_norm {

// A row is `kLanes` threads', each of which has `kVectors` vectors of 16 bytes of it; a block has
// `kRows` rows at a time. Blocks for one multiprocessor: what registers are limited for.
template <int kLanes_, int kVectors_, int kRows_, int kBlocks_ = 1>
struct Cut {
  static constexpr int kLanes = kLanes_, kVectors = kVectors_, kRows = kRows_, kBlocks = kBlocks_;
  static constexpr int kThreads = kLanes * kRows;
  static_assert(kThreads % 32 == 0 && kThreads <= 1024, "a block is whole warps");
  static_assert((kLanes & (kLanes - 1)) == 0, "sums are formed by halves");
  static_assert(kLanes <= 32 || kRows < 16, "a row has a barrier of its own");
};

template <class T>
using Vector = kernforge::AlignedVector<T, kernforge::kVectorLength<T>>;

// What is read or written once: not kept in L1, where weight and bias are.
template <class T>
__device__ __forceinline__ Vector<T> load_once(const T* from) {
  Vector<T> v;
  auto& words = reinterpret_cast<uint4&>(v);
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return v;
}

template <class T>
__device__ __forceinline__ void store_once(Vector<T>* to, const Vector<T>& v) {
  const auto& words = reinterpret_cast<const uint4&>(v);
  asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
               "r"(words.y), "r"(words.z), "r"(words.w)
               : "memory");
}

// What the compiler knows of a vector is forgotten: it widens the elements again where they are
// used next, instead of keeping twice the registers until then.
template <class T, int kVectors>
__device__ __forceinline__ void stay_packed(Vector<T> (&v)[kVectors]) {
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      auto& words = reinterpret_cast<uint4&>(v[i]);
      asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    }
  }
}

// Elements of weight or bias as float, of the type T or of float.
template <class T>
__device__ __forceinline__ void load_weights(float (&to)[kernforge::kVectorLength<T>],
                                             const void* from, int at, bool is_float) {
  constexpr int kLength = kernforge::kVectorLength<T>;
  if (sizeof(T) == 4 || is_float) {
    const auto* vectors = reinterpret_cast<const float4*>(static_cast<const float*>(from) + at);
#pragma unroll
    for (int i = 0; i < kLength / 4; ++i) {
      const float4 v = vectors[i];
      to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
  } else {
    const auto v = *reinterpret_cast<const Vector<T>*>(static_cast<const T*>(from) + at);
#pragma unroll
    for (int i = 0; i < kLength; ++i) to[i] = kernforge::widen(v.at[i]);
  }
}

// One element of weight or bias; `none` where there is no such tensor.
template <class T>
__device__ __forceinline__ kernforge::widened_t<T> weight_at(const void* from, int64_t at,
                                                             bool is_float,
                                                             kernforge::widened_t<T> none) {
  if (from == nullptr) return none;
  if (is_float) return static_cast<const float*>(from)[at];
  return kernforge::widen(static_cast<const T*>(from)[at]);
}

// Threads of a block of the kernels that take any row.
constexpr int kAnyThreads = 512;

// Memory for what the warps of a row leave for each other, twice: threads may still read one row's
// while others write the next one's.
template <class C, int kNumbers>
struct Shared {
  static constexpr int kWarps = C::kLanes > 32 ? C::kLanes / 32 : 1;
  float partial[2][C::kRows][kNumbers][kWarps];
};

// The threads of a row wait for each other.
template <class C>
__device__ __forceinline__ void wait_for_row() {
  if constexpr (C::kRows == 1) {
    __syncthreads();
  } else {
    const int row = threadIdx.x / C::kLanes;
    asm volatile("bar.sync %0, %1;" ::"r"(row + 1), "n"(C::kLanes) : "memory");
  }
}

// The sum of `v` over each kLanes threads of a warp, in all of them.
template <int kLanes>
__device__ __forceinline__ float sum_of_lanes(float v) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
  return v;
}

// The same over those threads of a row that are in one warp.
template <class C>
__device__ __forceinline__ float sum_of_warp(float v) {
  return sum_of_lanes<(C::kLanes < 32 ? C::kLanes : 32)>(v);
}

// The sums of `v` over the threads of a row, in all of them; always added in the same order.
// `turn` is 0 and 1 by turns.
template <class C, int kSums>
__device__ __forceinline__ void sum_of_row(float (&v)[kSums], Shared<C, kSums>& shared, int turn) {
#pragma unroll
  for (int s = 0; s < kSums; ++s) v[s] = sum_of_warp<C>(v[s]);
  if constexpr (C::kLanes > 32) {
    auto& partial = shared.partial[turn][threadIdx.x / C::kLanes];
    if (threadIdx.x % 32 == 0) {
      const int warp = threadIdx.x % C::kLanes / 32;
#pragma unroll
      for (int s = 0; s < kSums; ++s) partial[s][warp] = v[s];
    }
    wait_for_row<C>();
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      v[s] = 0;
#pragma unroll
      for (int i = 0; i < C::kLanes / 32; ++i) v[s] += partial[s][i];
    }
  }
}

// How many numbers of a row of so many vectors are a thread's warp's.
template <class C, int kLength>
__device__ __forceinline__ float numbers_of_warp(int lane, int vectors) {
  int mine = 0;
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) mine += i * C::kLanes + lane < vectors ? kLength : 0;
  return sum_of_warp<C>(static_cast<float>(mine));
}

struct RowMoments {
  float mean, squares;  // squares: the sum of those of what differs from the mean
};

// A warp forms its mean, and then the sum of the squares of what differs from it; those of several
// warps are merged as Chan, Golub and LeVeque do, so that a row has one barrier. RMSNorm: the mean
// is 0. Places of `in` after the end of the row hold 0.
template <class C, class T>
__device__ __forceinline__ RowMoments moments_of_row(Vector<T> (&in)[C::kVectors], int lane,
                                                     int vectors, float numbers, float scale,
                                                     bool rms, Shared<C, 3>& shared, int turn) {
  constexpr int kLength = kernforge::kVectorLength<T>;
  float mean = 0, squares = 0;
  if (!rms) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C::kVectors; ++i) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) sum += kernforge::widen(in[i].at[j]);
    }
    stay_packed<T>(in);
    mean = sum_of_warp<C>(sum) * (C::kLanes > 32 ? 1 / fmaxf(numbers, 1) : scale);
  }
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) {
    if (i * C::kLanes + lane >= vectors) break;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const float d = kernforge::widen(in[i].at[j]) - mean;
      squares = fmaf(d, d, squares);
    }
  }
  stay_packed<T>(in);
  squares = sum_of_warp<C>(squares);
  if constexpr (C::kLanes > 32) {
    constexpr int kWarps = C::kLanes / 32;
    auto& partial = shared.partial[turn][threadIdx.x / C::kLanes];
    if (threadIdx.x % 32 == 0) {
      const int warp = threadIdx.x % C::kLanes / 32;
      partial[0][warp] = numbers, partial[1][warp] = mean, partial[2][warp] = squares;
    }
    wait_for_row<C>();
    if constexpr (kWarps > 8) {  // a lane takes what one warp left
      const int from = threadIdx.x % kWarps;
      const float count = partial[0][from], d = partial[1][from], own = partial[2][from];
      mean = sum_of_lanes<kWarps>(count * scale * d);
      squares = sum_of_lanes<kWarps>(fmaf(count * (d - mean), d - mean, own));
      return {mean, squares};
    }
    squares = 0;
    if (rms) {
#pragma unroll
      for (int i = 0; i < kWarps; ++i) squares += partial[2][i];
    } else {
      mean = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) mean = fmaf(partial[0][i] * scale, partial[1][i], mean);
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        const float d = partial[1][i] - mean;
        squares += fmaf(partial[0][i] * d, d, partial[2][i]);
      }
    }
  }
  return {mean, squares};
}

}  // namespace layer_norm
