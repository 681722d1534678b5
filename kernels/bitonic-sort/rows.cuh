// SPDX-License-Identifier: Apache-2.0
//
// What the two ways to sort rows of one warp or block share.

#pragma once

#include "bitonic_sort.h"
#include "network.cuh"

namespace bitonic_sort {

struct Parts {
  Rows rows;
  int64_t chunks;
  void* scratch;  // 16-bit numbers, `pitch` bytes a row
  int64_t pitch;
  int log;    // 2^log slots of a row
  bool rest;  // of rows with kLeft only
};

constexpr int kWarps = 8;      // of a block whose rows are each one warp's
constexpr int kSmall = 128;    // threads of a block of which a multiprocessor has some
constexpr int64_t kLeft = -1;  // in the place of the first index of rows that are not sorted yet

// Whether rows of 2^log slots are tried by spread_launch first: the network needs less time for
// shorter ones, and for floats of 16 bits, whose places in a row are costly.
inline bool is_spread(const Order& order, int log) {
  if (order.kind == Kind::kFloat && order.bits == 16) return log >= 13;
  return log >= (order.bits == 64 ? 9 : 10);
}

// Sorts rows whose words are spread evenly; for others, writes kLeft.
template <class U>
cudaError_t spread_launch(const Order& order, const Parts& of, cudaStream_t stream);

namespace {

template <class U>
constexpr bool kWhole = sizeof(U) <= 2;  // whether a word holds the key

template <bool kBlock>
__device__ __forceinline__ void synchronize() {
  if constexpr (kBlock) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}

// Whether it is so in a thread of the warp or block. Synchronizes.
template <bool kBlock>
__device__ __forceinline__ bool any_of(bool so) {
  if constexpr (kBlock) {
    return __syncthreads_or(so);
  } else {
    const bool any = __any_sync(0xffffffffu, so);
    __syncwarp();
    return any;
  }
}

__device__ __forceinline__ int bits_of(uint32_t v) { return 32 - __clz(v); }
__device__ __forceinline__ int bits_of(uint64_t v) {
  return 64 - __clzll(static_cast<long long>(v));
}

using Mask = uint32_t;  // a bit for each word of a thread
static_assert(kEach == 32);

__device__ __forceinline__ int first_of(Mask mask) { return __ffs(static_cast<int>(mask)) - 1; }

// Elements of 8 bytes are read from shared memory like words, 32 side by side by each thread.
template <class U>
__device__ __forceinline__ int element_at(int slot) {
  return sizeof(U) == 8 ? padded(slot) : slot;
}

__device__ __forceinline__ float least_of(float a, float b) {  // NaN where one is
#if defined(__CUDA_ARCH__)
  float least;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(least) : "f"(a), "f"(b));
  return least;
#else
  return a < b || a != a ? a : b;
#endif
}
__device__ __forceinline__ float greatest_of(float a, float b) {
#if defined(__CUDA_ARCH__)
  float greatest;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(greatest) : "f"(a), "f"(b));
  return greatest;
#else
  return a > b || a != a ? a : b;
#endif
}

// A number as a float.
__device__ __forceinline__ float as_float(uint32_t, const Keys<uint8_t>&) { return 0.0f; }
__device__ __forceinline__ float as_float(uint32_t bits, const Keys<uint16_t>& keys) {
  if (keys.infinity == 0x7f80) return __uint_as_float(bits << 16);
#if defined(__CUDA_ARCH__)
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(static_cast<uint16_t>(bits)));
  return f;
#else
  const float size = __uint_as_float((bits & 0x7fff) << 13) * 5.192296858534828e33f;
  return (bits & 0x7fff) >= 0x7c00 ? NAN : bits >> 15 ? -size : size;
#endif
}

__device__ __forceinline__ float as_float(uint32_t bits, const Keys<uint32_t>&) {
  return __uint_as_float(bits);
}
__device__ __forceinline__ float as_float(uint64_t bits, const Keys<uint64_t>&) {
  return static_cast<float>(__longlong_as_double(static_cast<long long>(bits)));
}

// Orders `count` words from place p of a row on by the keys of their elements; equal ones keep
// their order.
template <class U>
__device__ __forceinline__ void order_group(uint32_t* words, const U* raw, const Keys<U>& keys,
                                            int row, int p, int count, uint32_t low_bits) {
  const auto word = [&](int q) -> uint32_t& { return words[padded(row + p + q)]; };
  const auto key = [&](uint32_t w) { return keys.key(raw[element_at<U>(row + (w & low_bits))]); };
  U last = key(word(0));
  for (int q = 1; q < count; ++q) {
    const uint32_t w = word(q);
    const U k = key(w);
    if (last <= k) {
      last = k;
      continue;
    }
    int to = q;
    do {
      word(to) = word(to - 1);
      --to;
    } while (to > 0 && key(word(to - 1)) > k);
    word(to) = w;
  }
}

// Bit r: that a thread's word r and the next one have equal leading bits. `starts`: where a group
// of such words begins. `beyond`: of the last group, words that other threads hold.
struct Groups {
  Mask same, starts;
  int beyond;
};

// Of sorted words.
__device__ __forceinline__ Groups groups_of(const uint32_t* words, const uint32_t (&w)[kEach],
                                            int blocked_first, int row_end, uint32_t low_bits,
                                            bool inexact, int longest) {
  Mask same = 0;
#pragma unroll
  for (int r = 0; r + 1 < kEach; ++r)
    same |= (w[r] ^ w[r + 1]) <= low_bits ? Mask{1} << r : Mask{0};
  const int last = blocked_first + kEach;
  if ((last & low_bits) != 0 && (words[padded(last)] ^ w[kEach - 1]) <= low_bits)
    same |= Mask{1} << (kEach - 1);
  const bool goes_on =
      (blocked_first & low_bits) != 0 && (words[padded(blocked_first - 1)] ^ w[0]) <= low_bits;
  if (!inexact) same = 0;
  // A group is its first thread's.
  const Mask starts = same & ~(same << 1 | (goes_on ? 1 : 0));
  int beyond = 0;
  if (same >> (kEach - 1) && (starts != 0 || same != ~Mask{0})) {
    do {
      ++beyond;
    } while (last + beyond < row_end && beyond < longest &&
             (words[padded(last + beyond)] ^ w[kEach - 1]) <= low_bits);
  }
  return {same, starts, beyond};
}

// Takes the first group away: its first place in the thread and how many words it has.
__device__ __forceinline__ int next_group(Groups& groups, int* first) {
  const int r = first_of(groups.starts);
  groups.starts &= groups.starts - 1;
  const Mask ends = ~(groups.same >> r);
  const int more = ends == 0 ? kEach : first_of(ends);  // behind its first
  *first = r;
  return r + more == kEach ? more + groups.beyond : more + 1;
}

// Reads elements side by side, into `raw` where words have not all of them, and into w where they
// have at most 32 bits: as they are read where `direct`, else in the blocked layout. `full`: no
// slot is empty.
template <class U>
__device__ __forceinline__ void read_rows(const U* x, U* raw, uint32_t* words, int thread, int log,
                                          int rows, int length, bool full, bool direct,
                                          uint32_t (&w)[kEach]) {
  constexpr bool kExact = kWhole<U>;
  const uint32_t low_bits = (1u << log) - 1;
  const int striped_first = (thread >> 5 << kLogWarp) + (thread & 31);
  if (full) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const U element = x[striped_first + 32 * r];
      if constexpr (!kExact) raw[element_at<U>(striped_first + 32 * r)] = element;
      if constexpr (sizeof(U) < 8) w[r] = element;
    }
  } else {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int slot = striped_first + 32 * r, row = slot >> log, i = slot & low_bits;
      U element = 0;
      if (row < rows && i < length) element = x[row * length + i];
      if constexpr (!kExact) raw[element_at<U>(slot)] = element;
      if constexpr (sizeof(U) < 8) w[r] = element;
    }
  }
  if (sizeof(U) < 8 && !direct) {
    uint32_t* at = striped(words, thread);
#pragma unroll
    for (int r = 0; r < kEach; ++r) at[padded(32 * r)] = w[r];
    __syncwarp();
    take_blocked(words, thread, w);
  }
}

// Writes elements and indices of sorted words side by side.
template <class U, bool kBlock>
__device__ __forceinline__ void write_rows(const Parts& of, const Keys<U>& keys, const U* x,
                                           const U* raw, uint32_t* words, int thread, int rows,
                                           int length, int64_t first, int64_t begin, bool full) {
  constexpr bool kExact = kWhole<U>;
  const int log = of.log;
  const uint32_t low_bits = (1u << log) - 1;
  const int striped_first = (thread >> 5 << kLogWarp) + (thread & 31);
  // The results, written side by side.
  const int64_t keep = of.rows.keep;
  U* values = static_cast<U*>(of.rows.values) + first * keep;
  int64_t* indices = of.rows.indices + first * keep;
  const auto value_of = [&](uint32_t word, int slot, int row) {
    if constexpr (kExact) {
      const U key = static_cast<U>(word >> log);
      return keys.several(key) ? x[row * length + (word & low_bits)] : keys.number(key);
    } else {
      return raw[element_at<U>((slot & ~low_bits) + (word & low_bits))];
    }
  };
  const uint32_t* sorted = striped(words, thread);
  if (full && keep == length && of.rows.source == nullptr && (!kBlock || of.chunks == 1)) {
#pragma unroll 16
    for (int r = 0; r < kEach; ++r) {
      const int slot = striped_first + 32 * r;
      const uint32_t word = sorted[padded(32 * r)];
      values[slot] = value_of(word, slot, slot >> log);
      indices[slot] = word & low_bits;
    }
    return;
  }
#pragma unroll 2
  for (int r = 0; r < kEach; ++r) {
    const int slot = striped_first + 32 * r, row = slot >> log, p = slot & low_bits;
    if (row >= rows || p >= length || p >= keep) continue;
    const uint32_t word = sorted[padded(32 * r)], i = word & low_bits;
    values[row * keep + p] = value_of(word, slot, row);
    int64_t index = i;
    if (kBlock && of.chunks > 1) index += begin - first / of.chunks * of.rows.length;
    if (of.rows.source != nullptr) index = of.rows.source[begin + row * length + i];
    indices[row * keep + p] = index;
  }
}

}  // namespace
}  // namespace bitonic_sort
