// SPDX-License-Identifier: Apache-2.0
//
// Voxels scaled on NVIDIA GPUs: one, a pack of 16 bytes of the result, and what a block has of
// them.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernforge/dtype.cuh"
#include "normalize_volume.h"

namespace normalize_volume {
namespace {

using kernforge::AlignedVector;

// (d / by.scale), correctly rounded or next to it: a quotient by the reciprocal, and what it
// misses.
__device__ __forceinline__ float divided(float d, const Scaling& by) {
  const float q = d * by.inverse;
  return fmaf(fmaf(-q, by.scale, d), by.inverse, q);
}

template <class Y, class V>
__device__ __forceinline__ Y scaled(V v, const Scaling& by, Limits limits) {
  const float q = divided((static_cast<float>(v) - by.whole) - by.rest, by);
  return kernforge::narrow<Y>(fminf(fmaxf(q, limits.low), limits.high));
}

// What is read or written for the last time (kLast) is the first to leave the L2 cache.
template <class P>
using words_t =
    std::conditional_t<sizeof(P) == 16, uint4, std::conditional_t<sizeof(P) == 8, uint2, unsigned>>;

template <bool kLast, class P>
__device__ __forceinline__ P load(const P* from) {
  if constexpr (kLast && sizeof(P) >= 4) {
    const auto words = __ldcs(reinterpret_cast<const words_t<P>*>(from));
    P pack;
    memcpy(&pack, &words, sizeof(P));
    return pack;
  } else {
    return *from;
  }
}

template <bool kLast, class P>
__device__ __forceinline__ void store(P* to, const P& pack) {
  if constexpr (kLast && sizeof(P) >= 4) {
    words_t<P> words;
    memcpy(&words, &pack, sizeof(P));
    __stcs(reinterpret_cast<words_t<P>*>(to), words);
  } else {
    *to = pack;
  }
}

template <class Y, class V, int kWidth>
__device__ __forceinline__ AlignedVector<Y, kWidth> scaled_pack(const AlignedVector<V, kWidth>& in,
                                                                const Scaling& by, Limits limits) {
  AlignedVector<Y, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.at[j] = scaled<Y>(in.at[j], by, limits);
  return out;
}

// One pack, or what there is of it at the end of a volume.
template <class Y, int kWidth, class V>
__device__ __forceinline__ void scale_pack(const V* v, Y* y, const Scaling& by, Limits limits,
                                           int64_t pack, int64_t n) {
  const int64_t at = pack * kWidth;
  if (at + kWidth <= n) {
    const auto in = *reinterpret_cast<const AlignedVector<V, kWidth>*>(v + at);
    *reinterpret_cast<AlignedVector<Y, kWidth>*>(y + at) = scaled_pack<Y>(in, by, limits);
  } else {
    for (int64_t i = at; i < n; ++i) y[i] = scaled<Y>(v[i], by, limits);
  }
}

// A policy's packs of a thread lie a block apart, and are loaded before the first is stored where
// all are whole.
template <class Policy, class Y, int kWidth, bool kLast, class V>
__device__ __forceinline__ void scale_packs(const V* v, Y* y, const Scaling& by, Limits limits,
                                            int64_t block, int64_t n) {
  constexpr int kThreads = Policy::kBlockThreads, kPacks = Policy::kVectorsPerThread;
  const int64_t first = block * (kThreads * kPacks) + threadIdx.x;
  if ((first + (kPacks - 1) * kThreads + 1) * kWidth > n) {
#pragma unroll 1
    for (int i = 0; i < kPacks; ++i) {
      scale_pack<Y, kWidth>(v, y, by, limits, first + i * kThreads, n);
    }
    return;
  }
  AlignedVector<V, kWidth> in[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    in[i] =
        load<kLast>(reinterpret_cast<const AlignedVector<V, kWidth>*>(v) + first + i * kThreads);
  }
  const Scaling with = by;  // once, although stores come between
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    store<kLast>(reinterpret_cast<AlignedVector<Y, kWidth>*>(y) + first + i * kThreads,
                 scaled_pack<Y>(in[i], with, limits));
  }
}

}  // namespace
}  // namespace normalize_volume
