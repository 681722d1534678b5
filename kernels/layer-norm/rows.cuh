// SPDX-License-Identifier: Apache-2.0
//
// How threads share a row: vectors of 16 bytes, and sums over a row's threads.

#pragma once

#include <cstdint>
#include <type_traits>

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

template <class T, int kLength = kernforge::kVectorLength<T>>
using Vector = kernforge::AlignedVector<T, kLength>;

// What the gradients read once: not kept in L1, where weight is. Single numbers are, since others
// read the rest of their sectors.
template <int kLength, class T>
__device__ __forceinline__ Vector<T, kLength> load_once(const T* from) {
  Vector<T, kLength> v;
  if constexpr (kLength == 1) {
    v.at[0] = *from;
  } else {
    auto& words = reinterpret_cast<uint4&>(v);
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from)
                 : "memory");
  }
  return v;
}

// The numbers of a vector. A half of a word takes one instruction, where the compiler, asked for
// one number after the other, takes two or three.
template <class T, int kLength>
__device__ __forceinline__ void unpack(float (&to)[kLength], const Vector<T, kLength>& v) {
  if constexpr (kLength == 1) {
    to[0] = kernforge::widen(v.at[0]);
  } else if constexpr (sizeof(T) == 2) {
    const auto& words = reinterpret_cast<const uint4&>(v);
    const uint32_t word[] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (std::is_same_v<T, __half>) {
        const float2 two = __half22float2(reinterpret_cast<const __half2&>(word[i]));
        to[2 * i] = two.x, to[2 * i + 1] = two.y;
      } else {
        to[2 * i] = __uint_as_float(word[i] << 16);
        to[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000);
      }
    }
  } else {
#pragma unroll
    for (int i = 0; i < kLength; ++i) to[i] = v.at[i];
  }
}

template <class T, int kLength>
__device__ __forceinline__ Vector<T, kLength> pack(const float (&from)[kLength]) {
  Vector<T, kLength> v;
#pragma unroll
  for (int i = 0; i < kLength; ++i) v.at[i] = kernforge::narrow<T>(from[i]);
  return v;
}

// What the compiler knows of a vector is forgotten: it widens the elements again where they are
// used next, instead of keeping twice the registers until then.
template <class T, int kLength, int kVectors>
__device__ __forceinline__ void stay_packed(Vector<T, kLength> (&v)[kVectors]) {
  if constexpr (sizeof(v[0]) == 16 && sizeof(T) == 2) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      auto& words = reinterpret_cast<uint4&>(v[i]);
      asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    }
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

// Elements of weight or bias as float, of the type T or of float.
template <class T, int kLength>
__device__ __forceinline__ void load_weights(float (&to)[kLength], const void* from, int at,
                                             bool is_float) {
  if constexpr (kLength == 1) {
    to[0] = weight_at<T>(from, at, is_float, 1);
  } else if (sizeof(T) == 4 || is_float) {
    const auto* vectors = reinterpret_cast<const float4*>(static_cast<const float*>(from) + at);
#pragma unroll
    for (int i = 0; i < kLength / 4; ++i) {
      const float4 v = vectors[i];
      to[4 * i] = v.x, to[4 * i + 1] = v.y, to[4 * i + 2] = v.z, to[4 * i + 3] = v.w;
    }
  } else {
    unpack<T>(to, *reinterpret_cast<const Vector<T>*>(static_cast<const T*>(from) + at));
  }
}

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
template <int kLanes, class W>
__device__ __forceinline__ W sum_of_lanes(W v) {
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

// The kernels that take any row: a row is kLanes threads', a part of a warp or a whole block. Each
// keeps so many of its elements in registers; those behind them are read again for each pass.
constexpr int kHeld = 16;

template <int kLanes>
struct Any {
  static constexpr int kThreads = kLanes < 128 ? 128 : kLanes, kRows = kThreads / kLanes;
  static constexpr int kWarps = kLanes < 32 ? 1 : kLanes / 32;
  static_assert(kLanes <= 32 || kRows == 1, "a row of several warps has a block of its own");
};

// Blocks for one multiprocessor: half of its threads, but for double, of which registers hold less.
template <class T, int kLanes>
constexpr int kAnyBlocks = sizeof(T) == 8 ? 1 : 1024 / Any<kLanes>::kThreads;

// The sum of `v` over the threads of such a row, in all of them. Memory is used once.
template <int kLanes, class W>
__device__ __forceinline__ W sum_of_any(W v, W (&memory)[Any<kLanes>::kWarps]) {
  v = sum_of_lanes<(kLanes < 32 ? kLanes : 32)>(v);
  if constexpr (kLanes > 32) {
    if (threadIdx.x % 32 == 0) memory[threadIdx.x / 32] = v;
    __syncthreads();
    v = sum_of_lanes<Any<kLanes>::kWarps>(memory[threadIdx.x % Any<kLanes>::kWarps]);
  }
  return v;
}

// How many numbers of a row are a thread's warp's, of which the first lane's vectors and those
// after them are `left`.
template <class C, int kLength>
__device__ __forceinline__ float numbers_of_warp(int left) {
  int mine = 0;
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) mine += min(max(left - i * C::kLanes, 0), 32);
  return static_cast<float>(mine * kLength);
}

struct RowMoments {
  float mean, variance;
};

// A warp forms its mean, and then the sum of the squares of what differs from it; those of several
// warps are merged as Chan, Golub and LeVeque do, so that a row has one barrier. RMSNorm: the mean
// is 0. A thread's vectors and those after them are `left`; those of `in` behind the end hold 0.
template <class C, class T>
__device__ __forceinline__ RowMoments merged_moments(Vector<T> (&in)[C::kVectors], int left,
                                                     float scale, bool rms, Shared<C, 3>& shared) {
  constexpr int kLength = kernforge::kVectorLength<T>;
  float mean = 0, squares = 0, numbers = 0;
  if (C::kLanes > 32 && !rms) {
    numbers = numbers_of_warp<C, kLength>(left + static_cast<int>(threadIdx.x % 32));
  }
  if (!rms) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < C::kVectors; ++i) {
      float x[kLength];
      unpack<T>(x, in[i]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) sum += x[j];
    }
    stay_packed<T>(in);
    mean = sum_of_warp<C>(sum) * (C::kLanes > 32 ? 1 / fmaxf(numbers, 1) : scale);
  }
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) {
    if (i * C::kLanes >= left) break;
    float x[kLength];
    unpack<T>(x, in[i]);
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const float d = x[j] - mean;
      squares = fmaf(d, d, squares);
    }
  }
  stay_packed<T>(in);
  squares = sum_of_warp<C>(squares);
  if constexpr (C::kLanes > 32) {
    constexpr int kWarps = C::kLanes / 32;
    auto& partial = shared.partial[0][threadIdx.x / C::kLanes];
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
      return {mean, squares * scale};
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
  return {mean, squares * scale};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// Adds the product of two matrices to d. A warp's words `low` and `high` are 8 rows of 16 numbers:
// lane l has 4 of row l / 4. [rows; ones] * rows^T has the sums of their squares in the diagonal
// of its upper half, and in each line of its lower half the sums of the rows.
template <class T>
__device__ __forceinline__ void multiply_by_itself(float (&d)[4], uint32_t low, uint32_t high) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %6, %5, %6}, "
        "{%4, %5}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(low), "r"(high), "r"(0x3c003c00));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %6, %5, %6}, "
        "{%4, %5}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(low), "r"(high), "r"(0x3f803f80));
  }
}

// The sum of a row of several warps and that of its squares, in all of its threads, in float.
template <class C, class T>
__device__ __forceinline__ float2 sums_by_matrices(const Vector<T> (&in)[C::kVectors],
                                                   Shared<C, 3>& shared) {
  float d[4] = {};
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) {
    const auto& words = reinterpret_cast<const uint4&>(in[i]);
    multiply_by_itself<T>(d, words.x, words.y);
    multiply_by_itself<T>(d, words.z, words.w);
  }
  // Lane l has of line l / 4 the columns l % 4 * 2 and the next one, of both halves.
  const int lane = threadIdx.x % 32, line = lane % 8;
  float squares = __shfl_sync(0xffffffff, lane & 4 ? d[1] : d[0], 4 * line + line / 2);
  squares = sum_of_lanes<8>(squares);
  float sum = sum_of_lanes<4>(d[2] + d[3]);
  constexpr int kWarps = C::kLanes / 32;
  auto& partial = shared.partial[1][threadIdx.x / C::kLanes];
  if (lane == 0) {
    const int warp = threadIdx.x % C::kLanes / 32;
    partial[0][warp] = sum, partial[1][warp] = squares;
  }
  wait_for_row<C>();
  if constexpr (kWarps > 8) {  // a lane takes what one warp left
    sum = sum_of_lanes<kWarps>(partial[0][lane % kWarps]);
    squares = sum_of_lanes<kWarps>(partial[1][lane % kWarps]);
  } else {
    sum = partial[0][0], squares = partial[1][0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) sum += partial[0][i], squares += partial[1][i];
  }
  return {sum, squares};
}
#endif

// The moments of a row. Those of wide rows of half types are from the sums of the numbers and of
// their squares, which tensor cores form in an eighth of the instructions, unless the mean is more
// than 4 deviations: then more than 4 bits would cancel, and all threads of the row see it.
template <class C, class T>
__device__ __forceinline__ RowMoments moments_of_row(Vector<T> (&in)[C::kVectors], int left,
                                                     float scale, bool rms, Shared<C, 3>& shared) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 2 && C::kLanes > 32) {
    const float2 sums = sums_by_matrices<C, T>(in, shared);
    if (rms) return {0, sums.y * scale};
    const float mean = sums.x * scale, variance = fmaf(-mean, mean, sums.y * scale);
    if (mean * mean <= 16 * variance) return {mean, variance};
  }
#endif
  return merged_moments<C, T>(in, left, scale, rms, shared);
}

}  // namespace layer_norm
