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
constexpr int kPerThread = 4;
constexpr int64_t kAlignment = 256;

// Keys of all elements, and their indices in their rows.
template <class U, class K>
static __global__ void make_keys(const U* x, K* key, uint32_t* index, int64_t count, int64_t length,
                                 Keys<U> keys) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t at = first + i * kThreads;
    if (at >= count) return;
    key[at] = keys.key(x[at]);
    index[at] = static_cast<uint32_t>(count == length ? at : at % length);
  }
}

// The elements of sorted keys, and their indices in 64 bits. Elements that differ and have one key,
// such as -0.0 and 0.0, are read where they came from.
template <class U, class K>
static __global__ void take_keys(const U* x, const K* key, const uint32_t* index, U* values,
                                 int64_t* indices, int64_t count, int64_t length, Keys<U> keys) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kThreads * kPerThread) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int64_t at = first + i * kThreads;
    if (at >= count) return;
    const U k = static_cast<U>(key[at]);
    const uint32_t from = index[at];
    const int64_t row = count == length ? 0 : at / length * length;
    values[at] = keys.several(k) ? x[row + from] : keys.number(k);
    indices[at] = from;
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

// A row of that length fills a GPU alone; shorter rows are sorted side by side, a block each.
constexpr int64_t kAlone = int64_t{1} << 19;
constexpr int64_t kMost = int64_t{1} << 30;  // elements that are sorted side by side

// How many rows are sorted by one call of CUB.
int64_t step_of(const Rows& of) {
  return of.length >= kAlone ? 1 : std::min(of.rows, kMost / of.length);
}

// Calls CUB for all rows, or asks it for its memory where `memory` is nullptr.
template <class K>
cudaError_t sort_pairs(const Rows& of, int bits, void* memory, size_t* bytes,
                       cub::DoubleBuffer<K>* key, cub::DoubleBuffer<uint32_t>* index,
                       cudaStream_t stream) {
  if (of.rows > 1) {
    const auto begin = thrust::make_transform_iterator(thrust::counting_iterator<int>(0),
                                                       RowBegin{static_cast<int>(of.length)});
    return cub::DeviceSegmentedRadixSort::SortPairs(
        memory, *bytes, *key, *index, static_cast<int>(of.rows * of.length),
        static_cast<int>(of.rows), begin, begin + 1, 0, bits, stream);
  }
  return cub::DeviceRadixSort::SortPairs(memory, *bytes, *key, *index, of.length, 0, bits, stream);
}

template <class K>
cudaError_t memory_for(const Rows& of, int bits, Memory<K>* memory) {
  const Rows piece = {nullptr, nullptr, nullptr, nullptr, step_of(of), of.length, of.length};
  memory->count = piece.rows * piece.length;
  memory->cub = 0;
  cub::DoubleBuffer<K> key(nullptr, nullptr);
  cub::DoubleBuffer<uint32_t> index(nullptr, nullptr);
  return sort_pairs(piece, bits, nullptr, &memory->cub, &key, &index, nullptr);
}

template <class U, class K>
cudaError_t sort(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  const Keys<U> keys(order);
  Memory<K> memory{};
  cudaError_t error = memory_for(of, order.bits, &memory);
  const int64_t step = step_of(of);
  for (int64_t row = 0; row < of.rows && error == cudaSuccess; row += step) {
    const int64_t rows = std::min(step, of.rows - row), count = rows * of.length;
    constexpr int64_t kBlock = kThreads * kPerThread;
    const auto blocks = static_cast<unsigned>((count + kBlock - 1) / kBlock);
    const U* x = static_cast<const U*>(of.x) + row * of.length;
    cub::DoubleBuffer<K> key(memory.key(scratch, 0), memory.key(scratch, 1));
    cub::DoubleBuffer<uint32_t> index(memory.index(scratch, 0), memory.index(scratch, 1));
    make_keys<U, K><<<blocks, kThreads, 0, stream>>>(x, key.Current(), index.Current(), count,
                                                     of.length, keys);
    error = cudaGetLastError();
    if (error != cudaSuccess) break;
    const Rows piece = {x, nullptr, nullptr, nullptr, rows, of.length, of.length};
    error = sort_pairs(piece, order.bits, memory.rest(scratch), &memory.cub, &key, &index, stream);
    if (error != cudaSuccess) break;
    take_keys<U, K><<<blocks, kThreads, 0, stream>>>(
        x, key.Current(), index.Current(), static_cast<U*>(of.values) + row * of.length,
        of.indices + row * of.length, count, of.length, keys);
    error = cudaGetLastError();
  }
  return error;
}

}  // namespace

cudaError_t radix_scratch(const Order& order, const Rows& of, size_t* bytes) {
  const auto ask = [&](auto key) {
    Memory<decltype(key)> memory{};
    const cudaError_t error = memory_for(of, order.bits, &memory);
    *bytes = memory.bytes();
    return error;
  };
  return order.bits == 64 ? ask(uint64_t{}) : ask(uint32_t{});
}

cudaError_t radix_launch(const Order& order, const Rows& of, void* scratch, cudaStream_t stream) {
  if (of.rows == 0 || of.length == 0) return cudaSuccess;
  switch (order.bits) {
    case 8:
      return sort<uint8_t, uint32_t>(order, of, scratch, stream);
    case 16:
      return sort<uint16_t, uint32_t>(order, of, scratch, stream);
    case 32:
      return sort<uint32_t, uint32_t>(order, of, scratch, stream);
    default:
      return sort<uint64_t, uint64_t>(order, of, scratch, stream);
  }
}

}  // namespace bitonic_sort
