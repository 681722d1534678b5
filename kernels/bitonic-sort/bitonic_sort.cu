// SPDX-License-Identifier: Apache-2.0
//
// Rows that fit into one block. Up to 1,024 elements are one warp's, shorter rows share a warp; up
// to 16,384 are one block's.
//
// The network sorts words of 32 bits: some bits of the key above the element's index in the row. So
// equal ones keep their order, and an index costs nothing. Keys of 8 and 16 bits are in the word
// whole. Of larger ones the word has leading bits: for floats, of the place between the least and
// the greatest number of the row ("linear"), for integers, of the difference from its least key.
// Elements whose bits are equal are then neighbours, and are ordered by their keys, one thread for
// each such group. Where a long group is not in order, a row of floats is sorted again by bits of
// keys, then by all digits of its keys, the lowest first.

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "bitonic_sort.h"
#include "network.cuh"
#include "rows.cuh"

namespace bitonic_sort {

constexpr int kLongGroup = 48;  // elements of a group that one thread does not order
constexpr int kFewBits = 19;    // of a word that are the key's, with which groups are long

// How many blocks of `threads` threads, or of warps that each sort a row, a multiprocessor should
// have at once: as many as its shared memory has room for.
template <class U>
constexpr int blocks_at_once(int threads) {
  if (threads == 0) return sizeof(U) == 8 ? 2 : sizeof(U) == 4 ? 3 : 4;
  return threads == kSmall ? (sizeof(U) == 8 ? 4 : 6) : 1;
}

// kMost: threads of a block that sorts a row, or 0 where each warp sorts its own.
template <class U, int kMost>
static __global__ void __launch_bounds__(kMost == 0 ? 32 * kWarps : kMost, blocks_at_once<U>(kMost))
    sort_rows(Parts of, Keys<U> keys) {
  constexpr bool kBlock = kMost != 0;
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ U reduced[2][16];
  __shared__ float ends[2][16];
  constexpr bool kExact = kWhole<U>;
  const int log = of.log, thread = kBlock ? threadIdx.x : threadIdx.x & 31;
  const int slots = kBlock ? 1 << log : kWarp;
  const uint32_t low_bits = (1u << log) - 1;  // of a slot, and of a word: the place in a row

  // This warp's or block's memory.
  constexpr size_t kBytes = sizeof(uint32_t) + (kExact ? 0 : sizeof(U));
  unsigned char* mine = memory;
  if constexpr (!kBlock) mine += (threadIdx.x >> 5) * (padded(kWarp) * kBytes);
  U* raw = reinterpret_cast<U*>(mine);
  auto* words = reinterpret_cast<uint32_t*>(mine + (kExact ? 0 : padded(slots) * sizeof(U)));

  // Its rows, from `first` on.
  const int64_t all = of.rows.rows * of.chunks;
  int64_t first = blockIdx.x, begin;
  int rows = 1, length = static_cast<int>(of.rows.length);
  if constexpr (kBlock) {
    begin = first * of.rows.length;
    if (of.chunks > 1) {
      const int64_t row = first / of.chunks, chunk = first % of.chunks;
      const int64_t from = chunk * of.rows.length / of.chunks;
      length = static_cast<int>((chunk + 1) * of.rows.length / of.chunks - from);
      begin = row * of.rows.length + from;
    }
  } else {
    first = (first * kWarps + (threadIdx.x >> 5)) << (kLogWarp - log);
    if (first >= all) return;
    rows = static_cast<int>(min(static_cast<int64_t>(kWarp >> log), all - first));
    begin = first * length;
  }
  if (of.rest && of.rows.indices[first * of.rows.keep] != kLeft) return;
  const U* x = static_cast<const U*>(of.rows.x) + begin;
  const bool full = rows << log == slots && length == 1 << log;  // no slot is empty

  // A thread's slots where memory is read and written, then in the blocked layout.
  const int striped_first = (thread >> 5 << kLogWarp) + (thread & 31);
  const int blocked_first = thread * kEach;
  const int row_first = blocked_first & ~static_cast<int>(low_bits);
  const bool has_row = row_first >> log < rows;
  // Where a warp or a block has one row, a thread sorts the elements that it reads.
  const bool direct = sizeof(U) < 8 && (kBlock || log == kLogWarp);
  const int lanes = kBlock ? 5 : log - kLogEach;
  const int word_first = direct ? striped_first : blocked_first, word_step = direct ? 32 : 1;
  const auto place = [&](int r) { return (word_first + r * word_step) & low_bits; };

  uint32_t w[kEach];
  read_rows(x, raw, words, thread, log, rows, length, full, direct, w);
  synchronize<kBlock>();

  const int held = 32 - log;  // bits of a word that are the key's
  bool linear = false, prepared = false, by_digits = false;
  float edge = 0, scale = 0;
  if constexpr (!kExact) {
    linear = keys.is_float();
    if (linear) {
      const auto number = [&](int r) {
        if constexpr (sizeof(U) == 8) {
          return static_cast<float>(
              __longlong_as_double(static_cast<long long>(raw[(kEach + 1) * thread + r])));
        } else {
          return __uint_as_float(w[r]);
        }
      };
      float low = INFINITY, high = -INFINITY;
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        if (!full && !(has_row && place(r) < length)) continue;
        low = least_of(low, number(r));
        high = greatest_of(high, number(r));
      }
      for (int i = 0; i < lanes; ++i) {
        low = least_of(low, __shfl_xor_sync(0xffffffffu, low, 1 << i));
        high = greatest_of(high, __shfl_xor_sync(0xffffffffu, high, 1 << i));
      }
      if constexpr (kBlock) {
        if ((threadIdx.x & 31) == 0) {
          ends[0][threadIdx.x >> 5] = low;
          ends[1][threadIdx.x >> 5] = high;
        }
        __syncthreads();
        for (int i = 0; i < slots >> kLogWarp; ++i) {
          low = least_of(low, ends[0][i]);
          high = greatest_of(high, ends[1][i]);
        }
      }
      const float range = high - low;
      linear = !has_row || range == 0 || (range >= 1e-30f && range <= 3e38f);
      if constexpr (!kBlock) linear = __all_sync(0xffffffffu, linear);
      edge = keys.is_descending() ? high : low;
      scale = range > 0 ? static_cast<float>((1 << min(held, 22)) - 2) / range : 0.0f;
    }
    if (linear) {
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
        float f;
        if constexpr (sizeof(U) == 8) {
          f = static_cast<float>(
              __longlong_as_double(static_cast<long long>(raw[(kEach + 1) * thread + r])));
        } else {
          f = __uint_as_float(w[r]);
        }
        // 2^23 more, so that the last bits are a whole number.
        const float at = fmaf(fabsf(f - edge), scale, 8388608.0f);
        w[r] = __float_as_uint(at) << log | place(r);
        if (!full && !(has_row && place(r) < length)) w[r] = ~0u;
      }
    }
  }

  // A row's numbers in scratch; rows of a tile follow each other.
  uint16_t* moved = reinterpret_cast<uint16_t*>(static_cast<char*>(of.scratch) +
                                                (first + (row_first >> log)) * of.pitch);
  U least = 0;
  int shift = 0, digits = 1, digit = 0;
  // By leading bits at once, or by all bits, the lowest first.
  for (;;) {
    if (!linear && !prepared) {
      prepared = true;
      if constexpr (sizeof(U) < 8) {
#pragma unroll
        for (int r = 0; r < kEach; ++r) w[r] = keys.key(static_cast<U>(w[r]));
      }
      // What is subtracted, and how many bits are left out.
      if constexpr (!kExact) {
        U most = 0;
        least = static_cast<U>(~U{0});
        const auto see = [&](U key) {
          least = min(least, key);
          most = max(most, key);
        };
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          if (!full && !(has_row && place(r) < length)) continue;
          if constexpr (sizeof(U) < 8) {
            see(w[r]);
          } else {
            see(keys.key(raw[(kEach + 1) * thread + r]));
          }
        }
        for (int i = 0; i < lanes; ++i) {
          least = min(least, __shfl_xor_sync(0xffffffffu, least, 1 << i));
          most = max(most, __shfl_xor_sync(0xffffffffu, most, 1 << i));
        }
        if constexpr (kBlock) {
          if ((threadIdx.x & 31) == 0) {
            reduced[0][threadIdx.x >> 5] = least;
            reduced[1][threadIdx.x >> 5] = most;
          }
          __syncthreads();
          for (int i = 0; i < slots >> kLogWarp; ++i) {
            least = min(least, reduced[0][i]);
            most = max(most, reduced[1][i]);
          }
        }
        const int bits = has_row ? bits_of(static_cast<U>(most - least)) : 0;
        shift = max(bits - held, 0);
        digits = (bits + held - 1) / held;
        by_digits = kBlock && held <= kFewBits && shift > 0;
        if constexpr (!kBlock) digits = __reduce_max_sync(0xffffffffu, digits);
      }
      if (!by_digits) {
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          U key;
          if constexpr (sizeof(U) < 8) {
            key = static_cast<U>(w[r]);
          } else {
            key = keys.key(raw[(kEach + 1) * thread + r]);
          }
          if constexpr (!kExact) key = (key - least) >> shift;
          w[r] = static_cast<uint32_t>(key) << log | place(r);
          if (!full && !(has_row && place(r) < length)) w[r] = ~0u;
        }
      }
    }
    if constexpr (!kExact) {
      if (by_digits) {
        const int down = digit * held;
#pragma unroll 4
        for (int r = 0; r < kEach; ++r) {
          const uint32_t i = blocked_first + r & low_bits;
          uint32_t word = ~0u;
          if (has_row && i < length) {
            const int from = digit == 0 ? i : moved[i];
            const U rest = keys.key(raw[element_at<U>(row_first + from)]) - least;
            word = static_cast<uint32_t>(down < Keys<U>::kBits ? rest >> down : U{0}) << log | i;
          }
          blocked(words, thread)[r] = word;
        }
        take_blocked(words, thread, w);
      }
    }
    sort_words<kBlock>(words, thread, log, w);
    put_blocked(words, thread, w);
    synchronize<kBlock>();
    if constexpr (kExact) break;
    if (by_digits) {  // a word's index is a place before this digit
      uint32_t* at = blocked(words, thread);
#pragma unroll 4
      for (int r = 0; r < kEach; ++r) {
        const uint32_t from = at[r] & low_bits;
        const bool there = has_row && (blocked_first + r & low_bits) < length;
        at[r] = digit == 0 || !there ? from : moved[from];
      }
      synchronize<kBlock>();
      if (++digit >= digits) break;
#pragma unroll 4
      for (int r = 0; r < kEach; ++r) {
        const int i = blocked_first + r & low_bits;
        if (has_row && i < length) moved[i] = static_cast<uint16_t>(at[r]);
      }
      synchronize<kBlock>();
      continue;
    }
    const bool inexact = linear ? scale > 0 : shift > 0;
    if (kBlock ? !inexact : !__any_sync(0xffffffffu, inexact)) break;

    Groups groups =
        groups_of(words, w, blocked_first, row_first + length, low_bits, inexact, kLongGroup);
    const Mask same = groups.same;
    synchronize<kBlock>();
    bool is_long = false;
    while (groups.starts != 0) {
      int r;
      const int found = next_group(groups, &r), p = blocked_first + r & low_bits;
      const int count = min(found, length - p);
      if (count > kLongGroup) {
        is_long = true;
      } else {
        order_group(words, raw, keys, row_first, p, count, low_bits);
      }
    }
    if (!any_of<kBlock>(is_long)) break;
    // Long groups may be in order, as those of equal elements are.
    bool is_wrong = false;
#pragma unroll 2
    for (int r = 0; r < kEach; ++r) {
      const int slot = blocked_first + r;
      if (!(same >> r & 1) || (slot & low_bits) + 1 >= length) continue;
      const auto key = [&](uint32_t word) {
        return keys.key(raw[element_at<U>(row_first + (word & low_bits))]);
      };
      is_wrong |= key(words[padded(slot)]) > key(words[padded(slot + 1)]);
    }
    if (!any_of<kBlock>(is_wrong)) break;
    by_digits = !linear;
    linear = false;
    if constexpr (sizeof(U) < 8) {
      for (int r = 0; r < kEach && !by_digits; ++r) {
        blocked(words, thread)[r] = raw[element_at<U>(word_first + r * word_step)];
      }
      if (!by_digits) take_blocked(words, thread, w);
    }
  }

  write_rows<U, kBlock>(of, keys, x, raw, words, thread, rows, length, first, begin, full);
}

// The first element of each row or part of one, the largest where the order descends: kLanes
// threads each, a part of a warp or the whole block.
template <class U, int kLanes>
static __global__ void __launch_bounds__(256) first_of_rows(const Parts of, const Keys<U> keys) {
  using Key = std::conditional_t<sizeof(U) < 4, uint32_t, U>;
  constexpr int kOfWarp = kLanes < 32 ? kLanes : 32;
  const int lane = threadIdx.x % kLanes;
  const int64_t result = int64_t{blockIdx.x} * (256 / kLanes) + threadIdx.x / kLanes;
  const bool there = result < of.rows.rows * of.chunks;
  const int64_t row = result / of.chunks, chunk = result % of.chunks;
  const int64_t begin = chunk * of.rows.length / of.chunks;
  const auto length =
      there ? static_cast<uint32_t>((chunk + 1) * of.rows.length / of.chunks - begin) : 0;
  const U* x = static_cast<const U*>(of.rows.x) + row * of.rows.length + begin;
  Key least = static_cast<Key>(~Key{0});
  uint32_t index = UINT32_MAX;
  const auto see = [&](Key key, uint32_t i) {
    if (key < least || (key == least && i < index)) least = key, index = i;
  };
#pragma unroll 8
  for (uint32_t i = lane; i < length; i += kLanes) see(keys.key(x[i]), i);
#pragma unroll
  for (int step = kOfWarp / 2; step > 0; step /= 2) {
    const Key key = __shfl_xor_sync(0xffffffffu, least, step);
    see(key, __shfl_xor_sync(0xffffffffu, index, step));
  }
  if constexpr (kLanes > 32) {
    __shared__ Key keys_of[kLanes / 32];
    __shared__ uint32_t indices_of[kLanes / 32];
    if (lane % 32 == 0) keys_of[lane / 32] = least, indices_of[lane / 32] = index;
    __syncthreads();
    for (int i = 0; i < kLanes / 32; ++i) see(keys_of[i], indices_of[i]);
  }
  if (!there || lane != 0) return;
  static_cast<U*>(of.rows.values)[result] = x[index];
  const int64_t at = begin + index;
  of.rows.indices[result] =
      of.rows.source == nullptr ? at : of.rows.source[row * of.rows.length + at];
}

namespace {

template <class U>
cudaError_t launch_first(const Order& order, const Parts& of, cudaStream_t stream) {
  const int64_t all = of.rows.rows * of.chunks;
  const auto run = [&](const auto kernel, int lanes) {
    const int64_t each = 256 / lanes, blocks = (all + each - 1) / each;
    if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
    kernel<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(of, Keys<U>(order));
    return cudaGetLastError();
  };
  if (of.log <= 6) return run(first_of_rows<U, 8>, 8);
  return of.log <= 10 ? run(first_of_rows<U, 32>, 32) : run(first_of_rows<U, 256>, 256);
}

template <class U>
cudaError_t launch(const Order& order, const Parts& of, cudaStream_t stream) {
  if (of.rows.keep == 1) return launch_first<U>(order, of, stream);
  if (of.rest) {
    const cudaError_t error = spread_launch<U>(order, of, stream);
    if (error != cudaSuccess) return error;
  }
  const bool block = of.log > kLogWarp;
  const auto kernel = !block                              ? sort_rows<U, 0>
                      : 1 << (of.log - kLogEach) > kSmall ? sort_rows<U, kLongest / kEach>
                                                          : sort_rows<U, kSmall>;
  const int threads = block ? 1 << (of.log - kLogEach) : 32 * kWarps;
  const int slots = block ? 1 << of.log : kWarp * kWarps;
  const size_t bytes = padded(slots) * (sizeof(uint32_t) + (kWhole<U> ? 0 : sizeof(U)));
  if (bytes > 48 << 10) {
    const cudaError_t error = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
    if (error != cudaSuccess) return error;
  }
  const int64_t all = of.rows.rows * of.chunks;
  const int64_t each = block ? 1 : int64_t{kWarps} << (kLogWarp - of.log);
  const int64_t blocks = (all + each - 1) / each;
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(blocks), threads, bytes, stream>>>(of, Keys<U>(order));
  return cudaGetLastError();
}

}  // namespace

int64_t scratch_for(const Order& order, const Rows& of, int64_t chunks) {
  const bool own = of.keep > 1 && order.bits > 16 && (of.keep < of.length || of.source != nullptr);
  return own ? of.rows * chunks * ((of.length + chunks - 1) / chunks) * 2 : 0;
}

cudaError_t rows_launch(const Order& order, const Rows& of, int64_t chunks, void* scratch,
                        cudaStream_t stream) {
  if (of.rows == 0 || of.keep == 0) return cudaSuccess;
  const int64_t longest = (of.length + chunks - 1) / chunks;
  int log = kLogEach;
  while (int64_t{1} << log < longest) ++log;
  // The indices' memory is free until they are written.
  const bool own = scratch_for(order, of, chunks) > 0;
  const Parts parts = {of,
                       chunks,
                       own ? scratch : of.indices,
                       own ? 2 * longest : 8 * longest,
                       log,
                       is_spread(order, log)};
  switch (order.bits) {
    case 8:
      return launch<uint8_t>(order, parts, stream);
    case 16:
      return launch<uint16_t>(order, parts, stream);
    case 32:
      return launch<uint32_t>(order, parts, stream);
    default:
      return launch<uint64_t>(order, parts, stream);
  }
}

}  // namespace bitonic_sort
