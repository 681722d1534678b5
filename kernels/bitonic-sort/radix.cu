// SPDX-License-Identifier: Apache-2.0
//
// Rows that are too long for one block: the radix sort of CUB, of keys and 32-bit indices.

#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>

#include "bitonic_sort.h"

namespace bitonic_sort {

constexpr int kThreads = 256;
constexpr int kPack = 4;  // elements of a thread, side by side
constexpr int64_t kAlignment = 256;

template <class T>
struct alignas(sizeof(T) * kPack > 16 ? 16 : sizeof(T) * kPack) Pack {
  T at[kPack];
};

// Keys of all elements, below the number of their row, and their indices in their rows.
template <class U, class K>
static __global__ void make_keys(const U* x, K* key, uint32_t* index, int64_t count, int64_t length,
                                 bool packed, Keys<U> keys) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  Pack<U> from{};
  if (packed && at + kPack <= count) {
    from = *reinterpret_cast<const Pack<U>*>(x + at);
  } else {
    for (int i = 0; i < kPack && at + i < count; ++i) from.at[i] = x[at + i];
  }
  Pack<K> made;
  Pack<uint32_t> places;
  const int64_t row = count == length ? 0 : at / length;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const bool next = at + i >= (row + 1) * length;  // rows are longer than a pack
    made.at[i] = keys.key(from.at[i]);
    if constexpr (sizeof(U) < sizeof(K)) made.at[i] |= static_cast<K>(row + next) << 8 * sizeof(U);
    places.at[i] = static_cast<uint32_t>(at + i - (row + next) * length);
  }
  // Memory of whole packs.
  *reinterpret_cast<Pack<K>*>(key + at) = made;
  *reinterpret_cast<Pack<uint32_t>*>(index + at) = places;
}

// The elements of sorted keys, and their indices in 64 bits. Elements that differ and have one key,
// such as -0.0 and 0.0, are read where they came from.
template <class U, class K>
static __global__ void take_keys(const U* x, const K* key, const uint32_t* index, U* values,
                                 int64_t* indices, int64_t count, int64_t length, bool packed,
                                 Keys<U> keys) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  const Pack<K> given = *reinterpret_cast<const Pack<K>*>(key + at);
  const Pack<uint32_t> places = *reinterpret_cast<const Pack<uint32_t>*>(index + at);
  const int64_t row = count == length ? 0 : at / length;
  Pack<U> taken;
  Pack<int64_t> wide;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    const bool next = at + i >= (row + 1) * length;
    const U k = static_cast<U>(given.at[i]);
    taken.at[i] = keys.number(k);
    if (keys.several(k) && at + i < count) taken.at[i] = x[(row + next) * length + places.at[i]];
    wide.at[i] = places.at[i];
  }
  if (packed && at + kPack <= count) {
    *reinterpret_cast<Pack<U>*>(values + at) = taken;
    *reinterpret_cast<Pack<int64_t>*>(indices + at) = wide;
  } else {
    for (int i = 0; i < kPack && at + i < count; ++i) {
      values[at + i] = taken.at[i];
      indices[at + i] = wide.at[i];
    }
  }
}

namespace {

// The first element of a row.
struct RowBegin {
  int length;
  __host__ __device__ int operator()(int row) const { return row * length; }
};

// Where keys and indices lie in scratch, each twice, and CUB's own memory behind them.
template <class K>
struct Memory {
  int64_t count;
  size_t cub;  // bytes

  static int64_t rounded(int64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }
  int64_t keys_bytes() const { return rounded(count * sizeof(K)); }
  int64_t indices_bytes() const { return rounded(count * sizeof(uint32_t)); }
  size_t bytes() const { return 2 * keys_bytes() + 2 * indices_bytes() + cub; }
  K* key(void* scratch, int i) const {
    return reinterpret_cast<K*>(static_cast<char*>(scratch) + i * keys_bytes());
  }
  uint32_t* index(void* scratch, int i) const {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(scratch) + 2 * keys_bytes() +
                                       i * indices_bytes());
  }
  void* rest(void* scratch) const {
    return static_cast<char*>(scratch) + 2 * keys_bytes() + 2 * indices_bytes();
  }
};

// Rows of that length are sorted one after the other. Shorter ones are sorted together: by keys of
// 64 bits a block each, by smaller ones as one long row, the number of the row above the key.
constexpr int64_t kAlone = int64_t{1} << 19;
constexpr int64_t kMost = int64_t{1} << 30;  // elements that are sorted together

// How many rows are sorted by one call of CUB.
int64_t step_of(const Rows& of) {
  return of.length >= kAlone ? 1 : std::min(of.rows, kMost / of.length);
}

int bits_of(int64_t rows) {
  int bits = 0;
  while (int64_t{1} << bits < rows) ++bits;
  return bits;
}

// Calls CUB for some rows, or asks it for its memory where `memory` is nullptr.
template <class K>
cudaError_t sort_pairs(const Order& order, int64_t rows, int64_t length, void* memory,
                       size_t* bytes, cub::DoubleBuffer<K>* key, cub::DoubleBuffer<uint32_t>* index,
                       cudaStream_t stream) {
  if constexpr (sizeof(K) == 8) {
    if (order.bits == 64 && rows > 1) {
      const auto begin = thrust::make_transform_iterator(thrust::counting_iterator<int>(0),
                                                         RowBegin{static_cast<int>(length)});
      return cub::DeviceSegmentedRadixSort::SortPairs(
          memory, *bytes, *key, *index, static_cast<int>(rows * length), static_cast<int>(rows),
          begin, begin + 1, 0, 64, stream);
    }
  }
  return cub::DeviceRadixSort::SortPairs(memory, *bytes, *key, *index, rows * length, 0,
                                         order.bits + bits_of(rows), stream);
}

template <class K>
cudaError_t memory_for(const Order& order, const Rows& of, Memory<K>* memory) {
  const int64_t rows = step_of(of);
  memory->count = rows * of.length;
  memory->cub = 0;
  cub::DoubleBuffer<K> key(nullptr, nullptr);
  cub::DoubleBuffer<uint32_t> index(nullptr, nullptr);
  return sort_pairs(order, rows, of.length, nullptr, &memory->cub, &key, &index, nullptr);
}

bool is_aligned(const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; }

template <class U, class K>
cudaError_t sort(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  const Keys<U> keys(order);
  Memory<K> memory{};
  cudaError_t error = memory_for(order, of, &memory);
  const int64_t step = step_of(of);
  for (int64_t row = 0; row < of.rows && error == cudaSuccess; row += step) {
    const int64_t rows = std::min(step, of.rows - row), count = rows * of.length;
    constexpr int64_t kBlock = kThreads * kPack;
    const auto blocks = static_cast<unsigned>((count + kBlock - 1) / kBlock);
    const U* x = static_cast<const U*>(of.x) + row * of.length;
    U* values = static_cast<U*>(of.values) + row * of.length;
    int64_t* indices = of.indices + row * of.length;
    cub::DoubleBuffer<K> key(memory.key(scratch, 0), memory.key(scratch, 1));
    cub::DoubleBuffer<uint32_t> index(memory.index(scratch, 0), memory.index(scratch, 1));
    make_keys<U, K><<<blocks, kThreads, 0, stream>>>(x, key.Current(), index.Current(), count,
                                                     of.length, is_aligned(x), keys);
    error = cudaGetLastError();
    if (error != cudaSuccess) break;
    error =
        sort_pairs(order, rows, of.length, memory.rest(scratch), &memory.cub, &key, &index, stream);
    if (error != cudaSuccess) break;
    take_keys<U, K><<<blocks, kThreads, 0, stream>>>(
        x, key.Current(), index.Current(), values, indices, count, of.length,
        is_aligned(values) && is_aligned(indices), keys);
    error = cudaGetLastError();
  }
  return error;
}

// Whether keys have 64 bits with the number of their row.
bool is_wide(const Order& order, const Rows& of) {
  return order.bits == 64 || (order.bits == 32 && step_of(of) > 1);
}

}  // namespace

cudaError_t radix_scratch(const Order& order, const Rows& of, size_t* bytes) {
  const auto ask = [&](auto key) {
    Memory<decltype(key)> memory{};
    const cudaError_t error = memory_for(order, of, &memory);
    *bytes = memory.bytes();
    return error;
  };
  return is_wide(order, of) ? ask(uint64_t{}) : ask(uint32_t{});
}

cudaError_t radix_launch(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  if (of.rows == 0 || of.length == 0) return cudaSuccess;
  switch (order.bits) {
    case 8:
      return sort<uint8_t, uint32_t>(order, of, scratch, stream);
    case 16:
      return sort<uint16_t, uint32_t>(order, of, scratch, stream);
    case 32:
      return is_wide(order, of) ? sort<uint32_t, uint64_t>(order, of, scratch, stream)
                                : sort<uint32_t, uint32_t>(order, of, scratch, stream);
    default:
      return sort<uint64_t, uint64_t>(order, of, scratch, stream);
  }
}

}  // namespace bitonic_sort
