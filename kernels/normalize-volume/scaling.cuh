// SPDX-License-Identifier: Apache-2.0
//
// Voxels scaled on NVIDIA GPUs: one, a pack of 16 bytes of the result, and what a block has of
// them.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "normalize_volume.h"

namespace normalize_volume {
namespace {

// (d / by.scale), correctly rounded or next to it: a quotient by the reciprocal, and what it
// misses.
__device__ __forceinline__ float divided(float d, const Scaling& by) {
  const float q = d * by.inverse;
  return fmaf(fmaf(-q, by.scale, d), by.inverse, q);
}

template <class Y, class V>
__device__ __forceinline__ Y scaled(V v, const Scaling& by, Limits limits) {
  const float q = divided((static_cast<float>(v) - by.whole) - by.rest, by);
  const float y = fminf(fmaxf(q, limits.low), limits.high);
  if constexpr (std::is_same_v<Y, __half>) {
    return __float2half_rn(y);
  } else if constexpr (std::is_same_v<Y, __nv_bfloat16>) {
    return __float2bfloat16_rn(y);
  } else {
    return y;
  }
}

template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
  T at[kWidth];
};

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
__device__ __forceinline__ Pack<Y, kWidth> scaled_pack(const Pack<V, kWidth>& in, const Scaling& by,
                                                       Limits limits) {
  Pack<Y, kWidth> out;
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
    const auto in = *reinterpret_cast<const Pack<V, kWidth>*>(v + at);
    *reinterpret_cast<Pack<Y, kWidth>*>(y + at) = scaled_pack<Y>(in, by, limits);
  } else {
    for (int64_t i = at; i < n; ++i) y[i] = scaled<Y>(v[i], by, limits);
  }
}

// kPacks packs a thread, a block apart, loaded before the first is stored where all are whole.
template <class Y, int kWidth, int kThreads, int kPacks, bool kLast, class V>
__device__ __forceinline__ void scale_packs(const V* v, Y* y, const Scaling& by, Limits limits,
                                            int64_t block, int64_t n) {
  const int64_t first = block * (kThreads * kPacks) + threadIdx.x;
  if ((first + (kPacks - 1) * kThreads + 1) * kWidth > n) {
#pragma unroll 1
    for (int i = 0; i < kPacks; ++i) {
      scale_pack<Y, kWidth>(v, y, by, limits, first + i * kThreads, n);
    }
    return;
  }
  Pack<V, kWidth> in[kPacks];
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    in[i] = load<kLast>(reinterpret_cast<const Pack<V, kWidth>*>(v) + first + i * kThreads);
  }
  const Scaling with = by;  // once, although stores come between
#pragma unroll
  for (int i = 0; i < kPacks; ++i) {
    store<kLast>(reinterpret_cast<Pack<Y, kWidth>*>(y) + first + i * kThreads,
                 scaled_pack<Y>(in[i], with, limits));
  }
}

}  // namespace
}  // namespace normalize_volume
