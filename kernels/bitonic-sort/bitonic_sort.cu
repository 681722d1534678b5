// SPDX-License-Identifier: Apache-2.0
//
// Rows that fit into one block. Up to 1,024 elements are one warp's, shorter rows share a warp; up
// to 16,384 are one block's.
//
// The network sorts words of 32 bits: some bits of the key above the element's index in the row. So
// equal ones keep their order, and an index costs nothing. Keys of 8 and 16 bits are in the word
// whole. Of larger ones, a row's least key is subtracted, and the word holds the leading bits of
// what remains. Elements whose leading bits are equal are then neighbours, and are ordered by their
// keys, one thread for each such group. Where a group is long, or bits are few, the row is sorted
// again by all of its digits, the lowest first.

#include <algorithm>

#include "bitonic_sort.h"
#include "network.cuh"

namespace bitonic_sort {

struct Parts {
  Rows rows;
  int64_t chunks;
  void* scratch;  // 16-bit numbers, `pitch` bytes a row
  int64_t pitch;
  int log;  // 2^log slots of a row
};

constexpr int kWarps = 4;       // of a block whose rows are each one warp's
constexpr int kLongGroup = 48;  // elements of a group that one thread does not order
constexpr int kFewBits = 19;    // of a word that are the key's, with which groups are long

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

__device__ __forceinline__ int bits_of(uint32_t v) { return 32 - __clz(v); }
__device__ __forceinline__ int bits_of(uint64_t v) {
  return 64 - __clzll(static_cast<long long>(v));
}

// Elements of 8 bytes are read from shared memory like words, 32 side by side by each thread.
template <class U>
__device__ __forceinline__ int element_at(int slot) {
  return sizeof(U) == 8 ? padded(slot) : slot;
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

}  // namespace

template <class U, bool kBlock>
static __global__ void __launch_bounds__(kBlock ? 512 : 32 * kWarps)
    sort_rows(Parts of, Keys<U> keys) {
  extern __shared__ __align__(16) unsigned char memory[];
  __shared__ U reduced[2][16];
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
  const U* x = static_cast<const U*>(of.rows.x) + begin;
  const bool full = rows << log == slots && length == 1 << log;  // no slot is empty

  // A thread's slots where memory is read and written, then in the blocked layout.
  const int striped_first = (thread >> 5 << kLogWarp) + (thread & 31);
  const int blocked_first = thread * kEach;
  const int row_first = blocked_first & ~static_cast<int>(low_bits);
  const bool has_row = row_first >> log < rows;
  // Where a warp or a block has one row, a thread sorts the elements that it reads.
  const bool direct = kBlock || log == kLogWarp;
  const int word_first = direct ? striped_first : blocked_first, word_step = direct ? 32 : 1;
  const auto place = [&](int r) { return (word_first + r * word_step) & low_bits; };

  uint32_t w[kEach];
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
    for (int r = 0; r < kEach; ++r) at[33 * r] = w[r];
    __syncwarp();
    take_blocked(words, thread, w);
  }
  if constexpr (sizeof(U) < 8) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) w[r] = keys.key(static_cast<U>(w[r]));
  }
  synchronize<kBlock>();

  // Of keys that a word does not hold: what is subtracted, and how many bits are left out.
  U least = 0;
  int shift = 0, digits = 1;
  bool by_digits = false;
  if constexpr (!kExact) {
    U most = 0;
    least = static_cast<U>(~U{0});
    const auto see = [&](U key) {
      least = min(least, key);
      most = max(most, key);
    };
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if constexpr (sizeof(U) < 8) {
        if (full) {
          see(w[r]);
        } else if (has_row && place(r) < length) {
          see(w[r]);
        }
      } else if (has_row && (blocked_first + r & low_bits) < length) {
        see(keys.key(raw[33 * thread + r]));
      }
    }
    const int lanes = kBlock ? 5 : log - kLogEach;
    for (int i = 0; i < lanes; ++i) {
      see(__shfl_xor_sync(0xffffffffu, least, 1 << i));
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
    const int bits = has_row ? bits_of(static_cast<U>(most - least)) : 0, held = 32 - log;
    shift = max(bits - held, 0);
    digits = (bits + held - 1) / held;
    by_digits = kBlock && held <= kFewBits && shift > 0;
    if constexpr (!kBlock) digits = __reduce_max_sync(0xffffffffu, digits);
  }

  // A row's numbers in scratch; rows of a tile follow each other.
  uint16_t* moved = reinterpret_cast<uint16_t*>(static_cast<char*>(of.scratch) +
                                                (first + (row_first >> log)) * of.pitch);
  int digit = 0;
  if (!by_digits) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const uint32_t i = sizeof(U) < 8 ? place(r) : blocked_first + r & low_bits;
      U key;
      if constexpr (sizeof(U) < 8) {
        key = static_cast<U>(w[r]);
      } else {
        key = keys.key(raw[33 * thread + r]);
      }
      if constexpr (!kExact) key = (key - least) >> shift;
      w[r] = static_cast<uint32_t>(key) << log | i;
      if (!full && !(has_row && i < length)) w[r] = ~0u;
    }
  }
  // By the leading digit at once, or digit by digit, the lowest first.
  for (;;) {
    if constexpr (!kExact) {
      if (by_digits) {
        const int down = digit * (32 - log);
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
    if (kBlock ? shift == 0 : !__any_sync(0xffffffffu, shift > 0)) break;

    // Bit r: that word r and the next one have equal leading bits.
    uint32_t same = 0;
#pragma unroll
    for (int r = 0; r + 1 < kEach; ++r) same |= (w[r] ^ w[r + 1]) <= low_bits ? 1u << r : 0u;
    const int last = blocked_first + kEach, row_end = row_first + length;
    if ((last & low_bits) != 0 && (words[padded(last)] ^ w[kEach - 1]) <= low_bits)
      same |= 1u << 31;
    const bool goes_on =
        (blocked_first & low_bits) != 0 && (words[padded(blocked_first - 1)] ^ w[0]) <= low_bits;
    if (shift == 0) same = 0;
    // A group is its first thread's.
    uint32_t starts = same & ~(same << 1 | (goes_on ? 1u : 0u));
    int beyond = 0;  // of the last group, words that other threads hold
    if (same >> 31 && (starts != 0 || same != ~0u)) {
      do {
        ++beyond;
      } while (last + beyond < row_end && beyond < kLongGroup &&
               (words[padded(last + beyond)] ^ w[kEach - 1]) <= low_bits);
    }
    synchronize<kBlock>();
    bool is_long = false;
    while (starts != 0) {
      const int r = __ffs(static_cast<int>(starts)) - 1;
      starts &= starts - 1;
      const uint32_t ends = ~(same >> r);
      const int more = ends == 0 ? kEach : __ffs(static_cast<int>(ends)) - 1;  // behind its first
      const int p = blocked_first + r & low_bits;
      const int count = min(r + more == kEach ? more + beyond : more + 1, length - p);
      if (count > kLongGroup) {
        is_long = true;
      } else {
        order_group(words, raw, keys, row_first, p, count, low_bits);
      }
    }
    if constexpr (kBlock) {
      by_digits = __syncthreads_or(is_long);
    } else {
      by_digits = __any_sync(0xffffffffu, is_long);
      __syncwarp();
    }
    if (!by_digits) break;
  }

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
      const uint32_t word = sorted[33 * r];
      values[slot] = value_of(word, slot, slot >> log);
      indices[slot] = word & low_bits;
    }
    return;
  }
#pragma unroll 2
  for (int r = 0; r < kEach; ++r) {
    const int slot = striped_first + 32 * r, row = slot >> log, p = slot & low_bits;
    if (row >= rows || p >= length || p >= keep) continue;
    const uint32_t word = sorted[33 * r], i = word & low_bits;
    values[row * keep + p] = value_of(word, slot, row);
    int64_t index = i;
    if (kBlock && of.chunks > 1) index += begin - first / of.chunks * of.rows.length;
    if (of.rows.source != nullptr) index = of.rows.source[begin + row * length + i];
    indices[row * keep + p] = index;
  }
}

namespace {

template <class U>
cudaError_t launch(const Order& order, const Parts& of, cudaStream_t stream) {
  const bool block = of.log > kLogWarp;
  const auto kernel = block ? sort_rows<U, true> : sort_rows<U, false>;
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
  const bool own = order.bits > 16 && (of.keep < of.length || of.source != nullptr);
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
  const Parts parts = {of, chunks, own ? scratch : of.indices, own ? 2 * longest : 8 * longest,
                       log};
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
