// SPDX-License-Identifier: Apache-2.0
//
// A sorting network over words of 32 bits: 32 of them in the registers of each thread, 1,024 in a
// warp. A comparison is one minimum and one maximum. All of them are within threads: where a step
// compares words of two threads, the words change threads through shared memory first.
//
// Words have slots. Three layouts say which slots a thread holds: 32 side by side ("blocked"), one
// of each 32 of its warp's 1,024 ("striped"), or 2^b apart ("far").

#pragma once

#include <cstdint>
#include <utility>

namespace bitonic_sort {
namespace {

constexpr int kLogEach = 5, kLogWarp = kLogEach + 5;
constexpr int kEach = 1 << kLogEach;  // words of a thread
constexpr int kWarp = 1 << kLogWarp;  // words of a warp

// One word in 33 is left out, so that no layout has two words of a warp in one bank.
__host__ __device__ constexpr int padded(int slot) { return slot + (slot >> kLogEach); }

__device__ __forceinline__ void exchange(uint32_t& low, uint32_t& high) {
  const uint32_t least = min(low, high);
  high = max(low, high);
  low = least;
}

// Batcher's odd-even merge sort of 32: 191 comparisons; a bitonic sort has 240.
struct Network {
  static constexpr int kSize = 191;
  int low[kSize], high[kSize];
};

constexpr Network odd_even() {
  Network net{};
  int at = 0;
  for (int p = 1; p < kEach; p *= 2) {
    for (int k = p; k >= 1; k /= 2) {
      for (int j = k % p; j + k < kEach; j += 2 * k) {
        for (int i = 0; i < k && i + j + k < kEach; ++i) {
          if ((i + j) / (2 * p) != (i + j + k) / (2 * p)) continue;
          net.low[at] = i + j;
          net.high[at++] = i + j + k;
        }
      }
    }
  }
  return net;
}

constexpr Network kOddEven = odd_even();

template <int kAt>
__device__ __forceinline__ void compare(uint32_t (&w)[kEach]) {
  constexpr int kLow = kOddEven.low[kAt], kHigh = kOddEven.high[kAt];
  exchange(w[kLow], w[kHigh]);
}

template <int... kAt>
__device__ __forceinline__ void sort_each(uint32_t (&w)[kEach],
                                          std::integer_sequence<int, kAt...>) {
  (compare<kAt>(w), ...);
}

// Sorts the words of each thread.
__device__ __forceinline__ void sort_each(uint32_t (&w)[kEach]) {
  sort_each(w, std::make_integer_sequence<int, Network::kSize>{});
}

// Compares words whose places differ in bit kFirst, then in those below, down to kLast.
template <int kFirst, int kLast = 0>
__device__ __forceinline__ void merge_each(uint32_t (&w)[kEach]) {
#pragma unroll
  for (int bit = kFirst; bit >= kLast; --bit) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (!(r >> bit & 1)) exchange(w[r], w[r | 1 << bit]);
    }
  }
}

// The first address of a thread in each layout.
__device__ __forceinline__ uint32_t* blocked(uint32_t* words, int thread) {
  return words + (kEach + 1) * thread;
}
__device__ __forceinline__ uint32_t* striped(uint32_t* words, int thread) {
  return words + padded(thread >> 5 << kLogWarp) + (thread & 31);
}

__device__ __forceinline__ void put_blocked(uint32_t* words, int thread,
                                            const uint32_t (&w)[kEach]) {
  uint32_t* at = blocked(words, thread);
#pragma unroll
  for (int r = 0; r < kEach; ++r) at[r] = w[r];
}
__device__ __forceinline__ void take_blocked(const uint32_t* words, int thread,
                                             uint32_t (&w)[kEach]) {
  const uint32_t* at = blocked(const_cast<uint32_t*>(words), thread);
#pragma unroll
  for (int r = 0; r < kEach; ++r) w[r] = at[r];
}

// The part of a merge within 1,024 slots: comparisons of bits kFirst..0 of the slot. kMirrored: the
// upper half of each 2^(kFirst + 1) slots is in ascending order like the lower one and is taken
// from its end, which makes both together a bitonic sequence.
template <int kFirst, bool kMirrored>
__device__ __forceinline__ void merge_in_warp(uint32_t* words, int thread, uint32_t (&w)[kEach]) {
  constexpr int kTop = kFirst - 5;  // the bit of the striped layout's row
  uint32_t* at = striped(words, thread);
  const uint32_t* back = at + 31 - 2 * (thread & 31);
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    if (kMirrored && (r >> kTop & 1)) {
      w[r] = back[padded(32 * (r ^ ((1 << kTop) - 1)))];
    } else {
      w[r] = at[padded(32 * r)];
    }
  }
  merge_each<kTop, kLogEach - 5>(w);
  if (kMirrored) __syncwarp();
#pragma unroll
  for (int r = 0; r < kEach; ++r) at[padded(32 * r)] = w[r];
  __syncwarp();
  take_blocked(words, thread, w);
  merge_each<kLogEach - 1>(w);
}

// The part of a merge to 2^log slots beyond 1,024: comparisons of bits log - 1..10.
__device__ __forceinline__ void merge_far(uint32_t* words, int thread, int log,
                                          uint32_t (&w)[kEach]) {
  const int bit = log - kLogEach, low = thread & ((1 << bit) - 1);
  const int first = thread >> bit << log, stride = (kEach + 1) << (bit - kLogEach);
  uint32_t* at = words + padded(first + low);
  const uint32_t* back = words + padded(first + ((1 << bit) - 1 - low));
#pragma unroll
  for (int r = 0; r < kEach; ++r)
    w[r] = r < kEach / 2 ? at[r * stride] : back[(kEach / 2 * 3 - 1 - r) * stride];
  merge_each<kLogEach - 1, kLogEach - 1>(w);
  if (log >= kLogWarp + 2) merge_each<kLogEach - 2, kLogEach - 2>(w);
  if (log >= kLogWarp + 3) merge_each<kLogEach - 3, kLogEach - 3>(w);
  if (log >= kLogWarp + 4) merge_each<kLogEach - 4, kLogEach - 4>(w);
  __syncthreads();
#pragma unroll
  for (int r = 0; r < kEach; ++r) at[r * stride] = w[r];
}

// Sorts the words of each 2^log slots, log from 5 to 10, or up to 14 where kBlock: then all threads
// of the block take part. `words` has padded(all slots) words that are not read any more. Words
// come in any order, each in a thread that holds slots of its row in the blocked layout, and leave
// blocked.
template <bool kBlock>
__device__ __forceinline__ void sort_words(uint32_t* words, int thread, int log,
                                           uint32_t (&w)[kEach]) {
  sort_each(w);
  for (int merged = kLogEach + 1; merged <= log; ++merged) {
    put_blocked(words, thread, w);
    if (kBlock && merged > kLogWarp) {
      __syncthreads();
      merge_far(words, thread, merged, w);
      __syncthreads();
      merge_in_warp<kLogWarp - 1, false>(words, thread, w);
      continue;
    }
    __syncwarp();
    switch (merged) {
      case kLogEach + 1:
        merge_in_warp<kLogEach, true>(words, thread, w);
        break;
      case kLogEach + 2:
        merge_in_warp<kLogEach + 1, true>(words, thread, w);
        break;
      case kLogEach + 3:
        merge_in_warp<kLogEach + 2, true>(words, thread, w);
        break;
      case kLogEach + 4:
        merge_in_warp<kLogEach + 3, true>(words, thread, w);
        break;
      default:
        merge_in_warp<kLogEach + 4, true>(words, thread, w);
    }
  }
}

}  // namespace
}  // namespace bitonic_sort
