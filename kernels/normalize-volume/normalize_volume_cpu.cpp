// SPDX-License-Identifier: Apache-2.0
//
// Volumes of small integers to floats on CPUs: plain loops that the compiler vectorises; formulas
// in normalize_volume.h. The half precisions are torch's header-only types, which need no torch
// library.

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>

#include "normalize_volume.h"

namespace normalize_volume {
namespace {

constexpr int64_t kBlock = 1024;  // voxels whose floats and partial sums stay in the first cache

#define NORMALIZE_VOLUME_INLINE inline __attribute__((always_inline))

template <class V, class Y>
NORMALIZE_VOLUME_INLINE void scale(const void* from, void* to, const Scaling& by, Limits limits,
                                   int64_t n) {
  const auto* v = static_cast<const V*>(from);
  auto* y = static_cast<Y*>(to);
  const float whole = by.whole, rest = by.rest, divisor = by.scale;
  const float low = limits.low, high = limits.high;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    float block[kBlock];
    for (int64_t i = 0; i < count; ++i) {
      const float q = ((static_cast<float>(v[at + i]) - whole) - rest) / divisor;
      const float up = q < low ? low : q;
      block[i] = up > high ? high : up;
    }
    for (int64_t i = 0; i < count; ++i) y[at + i] = static_cast<Y>(block[i]);
  }
}

template <class V, int kBias>
NORMALIZE_VOLUME_INLINE Sums sums(const void* from, int64_t n) {
  const auto* v = static_cast<const V*>(from);
  int64_t first = 0;
  uint64_t second = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    int32_t part = 0;  // 1,024 voxels of at most 2^15
    uint64_t squares = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int32_t x = static_cast<int32_t>(v[at + i]) - kBias;
      part += x;
      squares += static_cast<uint32_t>(x * x);
    }
    first += part;
    second += squares;
  }
  return {static_cast<uint64_t>(first), second};
}

template <class V>
NORMALIZE_VOLUME_INLINE void scale_to(To to, const void* v, void* y, const Scaling& by,
                                      Limits limits, int64_t n) {
  switch (to) {
    case To::kFloat:
      return scale<V, float>(v, y, by, limits, n);
    case To::kBfloat16:
      return scale<V, c10::BFloat16>(v, y, by, limits, n);
    case To::kHalf:
      return scale<V, c10::Half>(v, y, by, limits, n);
  }
}

// The switches over types, compiled for one target: what they call is inlined and so is too.
#define NORMALIZE_VOLUME_FOR_TARGET(NAME, TARGET)                                       \
  TARGET void scale_##NAME(From from, To to, const void* v, void* y, const Scaling& by, \
                           Limits limits, int64_t n) {                                  \
    switch (from) {                                                                     \
      case From::kUint8:                                                                \
        return scale_to<uint8_t>(to, v, y, by, limits, n);                              \
      case From::kInt16:                                                                \
        return scale_to<int16_t>(to, v, y, by, limits, n);                              \
      case From::kUint16:                                                               \
        return scale_to<uint16_t>(to, v, y, by, limits, n);                             \
    }                                                                                   \
  }                                                                                     \
  TARGET Sums sums_##NAME(From from, const void* v, int64_t n) {                        \
    switch (from) {                                                                     \
      case From::kUint8:                                                                \
        return sums<uint8_t, 0>(v, n);                                                  \
      case From::kInt16:                                                                \
        return sums<int16_t, 0>(v, n);                                                  \
      case From::kUint16:                                                               \
        return sums<uint16_t, bias_of(From::kUint16)>(v, n);                            \
    }                                                                                   \
    return {0, 0};                                                                      \
  }

NORMALIZE_VOLUME_FOR_TARGET(plain, )
#if defined(__x86_64__)
NORMALIZE_VOLUME_FOR_TARGET(avx2, __attribute__((target("avx2,f16c"))))

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}
#endif

}  // namespace

void scale_cpu(From from, To to, const void* v, void* y, const Scaling& by, Limits limits,
               int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return scale_avx2(from, to, v, y, by, limits, n);
#endif
  scale_plain(from, to, v, y, by, limits, n);
}

Sums sums_cpu(From from, const void* v, int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return sums_avx2(from, v, n);
#endif
  return sums_plain(from, v, n);
}

}  // namespace normalize_volume
