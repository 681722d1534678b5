// SPDX-License-Identifier: Apache-2.0
//
// Sums of a volume's voxels and of their squares on NVIDIA GPUs: by thread, warp and block; why
// they are exact is in normalize_volume.h.

#pragma once

#include <cstdint>
#include <type_traits>

#include "normalize_volume.h"

namespace normalize_volume {
namespace {

template <class V>
constexpr int kBias = bias_of(std::is_same_v<V, uint16_t> ? From::kUint16 : From::kInt16);

template <class V>
__device__ __forceinline__ void add(Sums& sums, V v) {
  const int x = static_cast<int>(v) - kBias<V>;
  sums.first += static_cast<uint64_t>(int64_t{x});
  sums.second += static_cast<uint32_t>(x * x);
}

// 16 bytes. A sum of 16 bits' worth of words fits 32 bits, and so do two squares.
template <class V>
__device__ __forceinline__ void add_pack(Sums& sums, const uint4& pack) {
  const uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
  if constexpr (sizeof(V) == 1) {
    uint32_t first = 0, second = 0;
#pragma unroll
    for (const uint32_t word : words) {
      first = __dp4a(word, 0x01010101u, first);
      second = __dp4a(word, word, second);
    }
    sums.first += first;
    sums.second += second;
  } else {
    int first = 0;
#pragma unroll
    for (const uint32_t word : words) {
      // From -32768 counted, a uint16 is the int16 with its upper bit turned.
      const auto turned = static_cast<int>(kBias<V> == 0 ? word : word ^ 0x80008000u);
      const int low = static_cast<int16_t>(turned), high = turned >> 16;
      first += low + high;
      sums.second += static_cast<uint32_t>(low * low) + static_cast<uint32_t>(high * high);
    }
    sums.first += static_cast<uint64_t>(int64_t{first});
  }
}

// A pack that adds nothing.
template <class V>
__device__ __forceinline__ uint4 nothing() {
  const uint32_t word = kBias<V> == 0 ? 0 : 0x80008000u;
  return make_uint4(word, word, word, word);
}

// What thread `rank` of `count` sees of one volume: aligned packs, `kAhead` of them loaded before
// the first is used, the last ones too, and the voxels before the first and after the last pack.
template <class V>
__device__ __forceinline__ Sums sums_of(const V* v, int64_t n, int64_t rank, int64_t count) {
  constexpr int kWidth = 16 / sizeof(V), kAhead = 4;
  Sums sums = {0, 0};
  const auto off = reinterpret_cast<uintptr_t>(v) % 16 / sizeof(V);
  const int64_t head = min(static_cast<int64_t>(off == 0 ? 0 : kWidth - off), n);
  const int64_t packs = (n - head) / kWidth;
  const auto* packed = reinterpret_cast<const uint4*>(v + head);
  for (int64_t at = rank; at < packs; at += kAhead * count) {
    uint4 ahead[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      ahead[i] = at + i * count < packs ? packed[at + i * count] : nothing<V>();
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) add_pack<V>(sums, ahead[i]);
  }
  if (rank < head) add(sums, v[rank]);
  const int64_t rest = head + packs * kWidth + rank;
  if (rest < n) add(sums, v[rest]);
  return sums;
}

// The sum over a warp, in all of its lanes.
__device__ __forceinline__ uint32_t warp_sum(uint32_t v) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(~0u, v);
#else
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) v += __shfl_xor_sync(~0u, v, lanes);
  return v;
#endif
}

// Modulo 2^64: 24 bits at a time, so that 32 of them fit the 32 bits that one instruction adds.
__device__ __forceinline__ uint64_t warp_sum(uint64_t v) {
  constexpr uint32_t kPart = (1 << 24) - 1;
  const uint64_t low = warp_sum(static_cast<uint32_t>(v) & kPart);
  const uint64_t middle = warp_sum(static_cast<uint32_t>(v >> 24) & kPart);
  const uint64_t high = warp_sum(static_cast<uint32_t>(v >> 48));
  return low + (middle << 24) + (high << 48);
}

// Of few voxels the sums stay within 2^30 and 2^45: half as many additions.
constexpr int64_t kFewVoxels = 1 << 15;
template <bool kFew>
__device__ __forceinline__ Sums warp_sum(Sums sums) {
  if constexpr (kFew) {
    constexpr uint32_t kPart = (1 << 24) - 1;
    const auto first = static_cast<int32_t>(warp_sum(static_cast<uint32_t>(sums.first)));
    const uint64_t low = warp_sum(static_cast<uint32_t>(sums.second) & kPart);
    const uint64_t high = warp_sum(static_cast<uint32_t>(sums.second >> 24));
    return {static_cast<uint64_t>(int64_t{first}), low + (high << 24)};
  } else {
    return {warp_sum(sums.first), warp_sum(sums.second)};
  }
}

// The sum over a block of whole warps, in all of its threads.
constexpr int kMostBlockThreads = 1024;
template <bool kFew = false>
__device__ __forceinline__ Sums block_sum(Sums sums) {
  __shared__ Sums of_warp[kMostBlockThreads / 32];
  sums = warp_sum<kFew>(sums);
  if (blockDim.x == 32) return sums;
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sums;
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  return warp_sum<kFew>(lane < blockDim.x / 32 ? of_warp[lane] : Sums{0, 0});
}

}  // namespace
}  // namespace normalize_volume
