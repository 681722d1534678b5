// SPDX-License-Identifier: Apache-2.0
//
// GELU by its tanh formula on CPUs; formulas in gelu_approx.h. Blocks are widened, float32 to
// double and the half types to float32, computed by loops without branches that the compiler
// vectorises, and rounded once. x86-64 gets them for AVX2 too, taken where the processor has it.
// The half precisions are the types of c10, whose headers need no torch library.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>

#include "gelu_approx.h"

namespace gelu_approx {
namespace {

constexpr int64_t kBlock = 256;  // elements: three arrays of them fit the first cache

#define GELU_INLINE inline __attribute__((always_inline))

// What T is computed in. kFar: from there on exp(-2 u) is 0. kShift: a sum with it has an integer
// in its last bits. kLeast: the least exponent that is no subnormal's, and one above it. kTerms of
// the series of exp are within 2^-23 (7), 2^-36 (9) or 2^-52 (13) of it.
template <class T>
struct Computed {
  using W = float;
  using Bits = uint32_t;
  static constexpr float kFar = 16, kShift = 12582912.0f, kLeast = -125;
  static constexpr int kMantissa = 23, kTerms = 7;
  static constexpr Bits kOne = 0x3f800000;
};
struct InDouble {
  using W = double;
  using Bits = uint64_t;
  static constexpr double kFar = 40, kShift = 6755399441055744.0, kLeast = -1021;
  static constexpr int kMantissa = 52;
  static constexpr Bits kOne = 0x3ff0000000000000;
};
template <>
struct Computed<float> : InDouble {
  static constexpr int kTerms = 9;
};
template <>
struct Computed<double> : InDouble {
  static constexpr int kTerms = 13;
};

// 2^t for t <= 0, 0 below kLeast, NaN for NaN.
template <class C>
GELU_INLINE typename C::W exp2_series(typename C::W t) {
  using W = typename C::W;
  constexpr W kLn2 = static_cast<W>(0.693147180559945309417);
  const W low = t < C::kLeast ? C::kLeast : t;
  const W shifted = low + C::kShift;
  const W f = (low - (shifted - C::kShift)) * kLn2;
  W sum = 1;
#pragma GCC unroll 16
  for (int k = C::kTerms; k > 0; --k) sum = 1 + sum * f * (W{1} / k);
  typename C::Bits bits;
  std::memcpy(&bits, &shifted, sizeof(W));
  bits = (bits << C::kMantissa) + C::kOne;  // the integer becomes an exponent
  W power;
  std::memcpy(&power, &bits, sizeof(W));
  return t < C::kLeast ? 0 : sum * power;
}

template <class C>
struct Parts {
  using W = typename C::W;
  W e, r, near, s;

  GELU_INLINE explicit Parts(W x) {
    near = x > C::kFar ? C::kFar : x < -C::kFar ? -C::kFar : x;
    const W a = near < 0 ? -near : near;
    constexpr W kFirst = kExponent, kThird = kExponent * kCubic;
    e = exp2_series<C>(a * (kFirst + kThird * (a * a)));
    r = 1 / (1 + e);
    s = (x < 0 ? e : 1) * r;
  }
};

template <class T>
GELU_INLINE void forward(const void* from, void* to, int64_t n) {
  using C = Computed<T>;
  using W = typename C::W;
  const auto* x = static_cast<const T*>(from);
  auto* y = static_cast<T*>(to);
  W in[kBlock], out[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    for (int64_t i = 0; i < count; ++i) in[i] = static_cast<W>(x[at + i]);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = (in[i] < -C::kFar ? -C::kFar : in[i]) * Parts<C>(in[i]).s;
    }
    for (int64_t i = 0; i < count; ++i) y[at + i] = static_cast<T>(out[i]);
  }
}

template <class T>
GELU_INLINE void backward(const void* gradient, const void* from, void* to, int64_t n) {
  using C = Computed<T>;
  using W = typename C::W;
  const auto* dy = static_cast<const T*>(gradient);
  const auto* x = static_cast<const T*>(from);
  auto* dx = static_cast<T*>(to);
  W in[kBlock], grad[kBlock], out[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    for (int64_t i = 0; i < count; ++i) in[i] = static_cast<W>(x[at + i]);
    for (int64_t i = 0; i < count; ++i) grad[i] = static_cast<W>(dy[at + i]);
    for (int64_t i = 0; i < count; ++i) {
      const Parts<C> p(in[i]);
      constexpr W kFirst = kSlope, kThird = 3 * kSlope * kCubic;
      out[i] = grad[i] * (p.s + p.near * (kFirst + kThird * (p.near * p.near)) * (p.e * p.r * p.r));
    }
    for (int64_t i = 0; i < count; ++i) dx[at + i] = static_cast<T>(out[i]);
  }
}

// The switch over types, compiled for one target: what it calls is inlined and so is too.
#define GELU_FOR_TARGET(NAME, TARGET)                                                            \
  TARGET void forward_##NAME(DType dtype, const void* x, void* y, int64_t n) {                   \
    switch (dtype) {                                                                             \
      case DType::kFloat32:                                                                      \
        return forward<float>(x, y, n);                                                          \
      case DType::kFloat16:                                                                      \
        return forward<c10::Half>(x, y, n);                                                      \
      case DType::kBFloat16:                                                                     \
        return forward<c10::BFloat16>(x, y, n);                                                  \
      case DType::kFloat64:                                                                      \
        return forward<double>(x, y, n);                                                         \
    }                                                                                            \
  }                                                                                              \
  TARGET void backward_##NAME(DType dtype, const void* dy, const void* x, void* dx, int64_t n) { \
    switch (dtype) {                                                                             \
      case DType::kFloat32:                                                                      \
        return backward<float>(dy, x, dx, n);                                                    \
      case DType::kFloat16:                                                                      \
        return backward<c10::Half>(dy, x, dx, n);                                                \
      case DType::kBFloat16:                                                                     \
        return backward<c10::BFloat16>(dy, x, dx, n);                                            \
      case DType::kFloat64:                                                                      \
        return backward<double>(dy, x, dx, n);                                                   \
    }                                                                                            \
  }

GELU_FOR_TARGET(plain, )
#if defined(__x86_64__)
GELU_FOR_TARGET(avx2, __attribute__((target("avx2,fma,f16c"))))

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                          __builtin_cpu_supports("f16c");
  return has;
}
#endif

}  // namespace

void forward_cpu(DType dtype, const void* x, void* y, int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return forward_avx2(dtype, x, y, n);
#endif
  forward_plain(dtype, x, y, n);
}

void backward_cpu(DType dtype, const void* dy, const void* x, void* dx, int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return backward_avx2(dtype, dy, x, dx, n);
#endif
  backward_plain(dtype, dy, x, dx, n);
}

}  // namespace gelu_approx
