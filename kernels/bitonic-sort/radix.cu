// SPDX-License-Identifier: Apache-2.0
//
// Rows that are too long for one block: radix sort by digits of 8 bits, the lowest first. Each pass
// reads keys and 32-bit indices once and writes them once: a tile ranks its elements by their digit
// (by CUB's block primitive), and learns how many of each digit are in the tiles before it while
// those are at work ("decoupled look-back", Merrill and Garland 2016; Adinets and Merrill 2022).
// The first pass reads numbers and makes keys and indices, the last one writes numbers and 64-bit
// indices. All rows are sorted at once, each with tiles of its own.

#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_scan.cuh>

#include "bitonic_sort.h"

namespace bitonic_sort {

constexpr int kLogDigits = 8, kDigits = 1 << kLogDigits;
constexpr int kCounters = 256;                 // threads that count digits
constexpr int kCounted = 1 << 15;              // elements that a block of them counts
constexpr int kCopies = 4;                     // of a counter, for neighbours with one digit
constexpr int64_t kNarrow = int64_t{1} << 30;  // shorter rows are counted in 32 bits with two flags
constexpr int64_t kAlignment = 256;

template <class U>
constexpr int kPasses = sizeof(U);

template <class U>
struct Tile {
  static constexpr int kThreads = 512, kItems = sizeof(U) == 8 ? 11 : 21;
  static constexpr int kSize = kThreads * kItems;
  static constexpr int kAtOnce = 2;  // blocks of a multiprocessor
};

// One pass over all rows. Where it is the first, `keys_in` are the numbers themselves, and where it
// is the last, `keys_out` are.
template <class U, class Count>
struct Pass {
  const U *x, *keys_in;
  const uint32_t* indices_in;
  U* keys_out;
  uint32_t* indices_out;
  int64_t* results;        // indices, of the last pass
  const uint32_t* begins;  // of each row, where the elements of each digit begin, for each pass
  Count* seen;             // of each tile, how many elements of each digit, with a flag
  uint32_t* ticket;
  int64_t length;
  uint32_t tiles;  // of a row
  int pass;
};

// What `seen` says: of this tile alone, or of the row's tiles up to this one.
template <class Count>
constexpr Count kAlone = Count{1} << (8 * sizeof(Count) - 2);
template <class Count>
constexpr Count kWithAll = Count{1} << (8 * sizeof(Count) - 1);

struct DigitOf {
  int shift;

  template <class U>
  __device__ __forceinline__ uint32_t Digit(U key) const {
    return static_cast<uint32_t>(key >> shift) & (kDigits - 1);
  }
};

// How many elements have each digit, in each row and for each pass. A block counts a part of a row.
template <class U>
static __global__ void __launch_bounds__(kCounters)
    count_digits(const U* x, uint32_t* counts, int64_t length, uint32_t parts, Keys<U> keys) {
  __shared__ uint32_t counted[kPasses<U> * kDigits][kCopies];
  for (int i = threadIdx.x; i < kPasses<U> * kDigits * kCopies; i += kCounters)
    (&counted[0][0])[i] = 0;
  __syncthreads();
  const int64_t row = blockIdx.x / parts;
  const int64_t from = static_cast<int64_t>(blockIdx.x % parts) * kCounted;
  const int size = static_cast<int>(min(static_cast<int64_t>(kCounted), length - from));
  const U* at = x + row * length + from;
#pragma unroll 8
  for (int i = threadIdx.x; i < size; i += kCounters) {
    const U key = keys.key(at[i]);
#pragma unroll
    for (int pass = 0; pass < kPasses<U>; ++pass)
      atomicAdd(
          &counted[pass * kDigits + DigitOf{pass * kLogDigits}.Digit(key)][threadIdx.x % kCopies],
          1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kPasses<U> * kDigits; i += kCounters) {
    uint32_t sum = 0;
    for (int copy = 0; copy < kCopies; ++copy) sum += counted[i][copy];
    if (sum != 0) atomicAdd(counts + row * kPasses<U> * kDigits + i, sum);
  }
}

// Of the counts of each row and pass, where the elements of each digit begin.
static __global__ void __launch_bounds__(kDigits) sum_counts(uint32_t* counts) {
  using Scan = cub::BlockScan<uint32_t, kDigits>;
  __shared__ typename Scan::TempStorage memory;
  uint32_t* mine = counts + static_cast<int64_t>(blockIdx.x) * kDigits + threadIdx.x;
  uint32_t begin;
  Scan(memory).ExclusiveSum(*mine, begin);
  *mine = begin;
}

// Tells other tiles how many elements of each digit this one has, as soon as it knows.
template <class Count>
struct Tell {
  volatile Count* seen;
  bool is_first;
  int* mine;

  static constexpr bool EMPTY = false;
  __device__ __forceinline__ void operator()(int (&counts)[1]) {
    *mine = counts[0];
    if (threadIdx.x >= kDigits) return;
    seen[threadIdx.x] =
        static_cast<Count>(counts[0]) | (is_first ? kWithAll<Count> : kAlone<Count>);
  }
};

template <class U>
using RankOf =
    cub::BlockRadixRankMatchEarlyCounts<Tile<U>::kThreads, kLogDigits, false,
                                        cub::BLOCK_SCAN_WARP_SCANS, cub::WARP_MATCH_ATOMIC_OR, 1>;

template <class U>
union Shared {
  typename RankOf<U>::TempStorage rank;
  U keys[Tile<U>::kSize];
  uint32_t indices[Tile<U>::kSize];
};

template <class U, class Count>
static __global__ void __launch_bounds__(Tile<U>::kThreads, Tile<U>::kAtOnce)
    sort_digits(Pass<U, Count> of, Keys<U> keys, bool is_first, bool is_last) {
  constexpr int kThreads = Tile<U>::kThreads, kItems = Tile<U>::kItems, kSize = Tile<U>::kSize;
  static_assert(kThreads >= kDigits && sizeof(Shared<U>) < 47 << 10);
  __shared__ Shared<U> shared;
  __shared__ uint32_t to[kDigits];  // from a place in the tile to one in the row
  __shared__ uint32_t ticket;

  // Tiles begin in the order of their numbers, so that no tile waits for one that has not begun.
  if (threadIdx.x == 0) ticket = atomicAdd(of.ticket, 1);
  __syncthreads();
  const uint32_t number = ticket, row = number / of.tiles, tile = number % of.tiles;
  const int64_t begin = row * of.length, from = static_cast<int64_t>(tile) * kSize;
  const int size = static_cast<int>(min(static_cast<int64_t>(kSize), of.length - from));
  const int first = (threadIdx.x & ~31) * kItems + (threadIdx.x & 31);  // then one in 32
  const DigitOf digit{of.pass * kLogDigits};

  U key[kItems];
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    if (first + 32 * i < size) key[i] = of.keys_in[begin + from + first + 32 * i];
  }
  if (is_first) {
#pragma unroll
    for (int i = 0; i < kItems; ++i) key[i] = keys.key(key[i]);
  }
  if (size < kSize) {  // behind all elements
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (first + 32 * i >= size) key[i] = static_cast<U>(~U{0});
    }
  }
  int ranks[kItems], before[1], count = 0;
  volatile Count* seen = of.seen + static_cast<int64_t>(number) * kDigits;
  RankOf<U>(shared.rank).RankKeys(key, ranks, digit, before, Tell<Count>{seen, tile == 0, &count});
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) shared.keys[ranks[i]] = key[i];
  if (threadIdx.x < kDigits) {
    uint32_t sum = 0;  // in the tiles before this one
    if (tile != 0) {
      volatile Count* at = seen + threadIdx.x;
      Count there;
      do {
        at -= kDigits;
        do {
          there = *at;
        } while (there == 0);
        sum += static_cast<uint32_t>(there & (kAlone<Count> - 1));
      } while (!(there & kWithAll<Count>));
      seen[threadIdx.x] = (static_cast<Count>(sum) + count) | kWithAll<Count>;
    }
    const int64_t digits = row * kPasses<U> + of.pass;
    to[threadIdx.x] = of.begins[digits * kDigits + threadIdx.x] + sum - before[0];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = threadIdx.x + i * kThreads;
    key[i] = shared.keys[at];
    if (!is_last && at < size) of.keys_out[begin + (at + to[digit.Digit(key[i])])] = key[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = first + 32 * i;
    uint32_t index = static_cast<uint32_t>(from + at);
    if (!is_first && at < size) index = of.indices_in[begin + from + at];
    shared.indices[ranks[i]] = index;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kItems; ++i) {
    const int at = threadIdx.x + i * kThreads;
    if (at >= size) continue;
    const int64_t place = begin + (at + to[digit.Digit(key[i])]);
    const uint32_t index = shared.indices[at];
    if (is_last) {
      // Elements that differ and have one key, such as -0.0 and 0.0, are read where they came from.
      of.keys_out[place] = keys.several(key[i]) ? of.x[begin + index] : keys.number(key[i]);
      of.results[place] = index;
    } else {
      of.indices_out[place] = index;
    }
  }
}

namespace {

int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

// Where things lie in scratch: keys and indices between passes, which the results' memory has too
// before it has results; then what begins as zeros.
template <class U>
struct Memory {
  int64_t count, rows, tiles, keys, indices, tickets, counts, seen;

  explicit Memory(const Rows& of) {
    count = of.rows * of.length;
    rows = of.rows;
    tiles = (of.length + Tile<U>::kSize - 1) / Tile<U>::kSize;
    keys = kPasses<U> > 1 ? rounded(count * sizeof(U)) : 0;
    indices = kPasses<U> > 1 ? rounded(count * sizeof(uint32_t)) : 0;
    tickets = rounded(kPasses<U> * sizeof(uint32_t));
    counts = rounded(rows * kPasses<U> * kDigits * sizeof(uint32_t));
    seen = kPasses<U> * rows * tiles * kDigits * (of.length < kNarrow ? 4 : 8);
  }
  int64_t zeros() const { return tickets + counts + seen; }
  int64_t bytes() const { return keys + indices + zeros(); }
};

template <class U, class Count>
cudaError_t sort(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  const Keys<U> keys(order);
  const Memory<U> memory(of);
  char* at = static_cast<char*>(scratch);
  U* other_keys = reinterpret_cast<U*>(at);
  auto* other_indices = reinterpret_cast<uint32_t*>(at += memory.keys);
  auto* tickets = reinterpret_cast<uint32_t*>(at += memory.indices);
  auto* counts = reinterpret_cast<uint32_t*>(at += memory.tickets);
  auto* seen = reinterpret_cast<Count*>(at + memory.counts);
  const int64_t parts = (of.length + kCounted - 1) / kCounted, blocks = of.rows * memory.tiles;
  if (blocks > INT32_MAX || of.rows * parts > INT32_MAX || of.rows > INT32_MAX / kPasses<U>)
    return cudaErrorInvalidConfiguration;
  cudaError_t error = cudaMemsetAsync(tickets, 0, memory.zeros(), stream);
  if (error != cudaSuccess) return error;
  const U* x = static_cast<const U*>(of.x);
  count_digits<U><<<static_cast<unsigned>(of.rows * parts), kCounters, 0, stream>>>(
      x, counts, of.length, static_cast<uint32_t>(parts), keys);
  sum_counts<<<static_cast<unsigned>(of.rows * kPasses<U>), kDigits, 0, stream>>>(counts);
  const U* keys_in = x;
  const uint32_t* indices_in = nullptr;
  for (int pass = 0; pass < kPasses<U>; ++pass) {
    const bool is_last = pass + 1 == kPasses<U>, to_results = is_last || pass % 2 == 1;
    U* keys_out = to_results ? static_cast<U*>(of.values) : other_keys;
    uint32_t* indices_out = to_results ? reinterpret_cast<uint32_t*>(of.indices) : other_indices;
    const Pass<U, Count> now = {x,
                                keys_in,
                                indices_in,
                                keys_out,
                                indices_out,
                                of.indices,
                                counts,
                                seen + pass * blocks * kDigits,
                                tickets + pass,
                                of.length,
                                static_cast<uint32_t>(memory.tiles),
                                pass};
    sort_digits<U, Count><<<static_cast<unsigned>(blocks), Tile<U>::kThreads, 0, stream>>>(
        now, keys, pass == 0, is_last);
    keys_in = keys_out;
    indices_in = indices_out;
  }
  return cudaGetLastError();
}

template <class U>
cudaError_t sort(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  return of.length < kNarrow ? sort<U, uint32_t>(order, of, scratch, stream)
                             : sort<U, uint64_t>(order, of, scratch, stream);
}

}  // namespace

int64_t radix_scratch(const Order& order, const Rows& of) {
  switch (order.bits) {
    case 8:
      return Memory<uint8_t>(of).bytes();
    case 16:
      return Memory<uint16_t>(of).bytes();
    case 32:
      return Memory<uint32_t>(of).bytes();
    default:
      return Memory<uint64_t>(of).bytes();
  }
}

cudaError_t radix_launch(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  if (of.rows == 0 || of.length == 0) return cudaSuccess;
  switch (order.bits) {
    case 8:
      return sort<uint8_t>(order, of, scratch, stream);
    case 16:
      return sort<uint16_t>(order, of, scratch, stream);
    case 32:
      return sort<uint32_t>(order, of, scratch, stream);
    default:
      return sort<uint64_t>(order, of, scratch, stream);
  }
}

}  // namespace bitonic_sort
