// SPDX-License-Identifier: Apache-2.0
//
// GELU by its tanh formula on CPUs; formulas in gelu_approx.h. Blocks are widened to double,
// computed by loops without branches that the compiler vectorises, and rounded once. x86-64 gets
// them for AVX2 too, taken where the processor has it. The half precisions are torch's header-only
// types, which need no torch library.

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstring>

#include "gelu_approx.h"

namespace gelu_approx {
namespace {

constexpr int64_t kBlock = 256;  // elements: the doubles of three arrays fit the first cache
constexpr double kFar = 40;      // from here on exp(-2 u) is 0 in double

#define GELU_INLINE inline __attribute__((always_inline))

// 2^t for -6700 <= t <= 0, 0 below 2^-1021, NaN for NaN; kTerms of the series, within 2^-36 (9)
// or 2^-52 (13) of it.
template <int kTerms>
GELU_INLINE double exp2_series(double t) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kShift = 6755399441055744.0;  // 1.5 * 2^52: the sum's last bits are an integer
  const double low = t < -1021.0 ? -1021.0 : t;
  const double shifted = low + kShift;
  const double f = (low - (shifted - kShift)) * kLn2;
  double sum = 1.0;
#pragma GCC unroll 16
  for (int k = kTerms; k > 0; --k) sum = 1.0 + sum * f * (1.0 / k);
  uint64_t bits;
  std::memcpy(&bits, &shifted, 8);
  bits = (bits << 52) + 0x3ff0000000000000;  // the integer becomes an exponent
  double power;
  std::memcpy(&power, &bits, 8);
  return t < -1021.0 ? 0.0 : sum * power;
}

template <int kTerms>
struct Parts {
  double e, r, near, s;

  GELU_INLINE explicit Parts(double x) {
    near = x > kFar ? kFar : x < -kFar ? -kFar : x;
    const double a = near < 0 ? -near : near;
    e = exp2_series<kTerms>(a * (kExponent + kExponent * kCubic * (a * a)));
    r = 1.0 / (1.0 + e);
    s = (x < 0 ? e : 1.0) * r;
  }
};

template <class T>
constexpr int kTermsOf = sizeof(T) == 8 ? 13 : 9;

// Through float, as the half types convert; a double is left as it is.
template <class T>
GELU_INLINE double widen(T v) {
  if constexpr (sizeof(T) == 8) return v;
  return static_cast<float>(v);
}

template <class T>
GELU_INLINE T narrow(double v) {
  if constexpr (sizeof(T) == 8) return v;
  return static_cast<T>(static_cast<float>(v));
}

template <class T>
GELU_INLINE void forward(const void* from, void* to, int64_t n) {
  const auto* x = static_cast<const T*>(from);
  auto* y = static_cast<T*>(to);
  double in[kBlock], out[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    for (int64_t i = 0; i < count; ++i) in[i] = widen(x[at + i]);
    for (int64_t i = 0; i < count; ++i) {
      const double v = in[i];
      out[i] = (v < -kFar ? -kFar : v) * Parts<kTermsOf<T>>(v).s;
    }
    for (int64_t i = 0; i < count; ++i) y[at + i] = narrow<T>(out[i]);
  }
}

template <class T>
GELU_INLINE void backward(const void* gradient, const void* from, void* to, int64_t n) {
  const auto* dy = static_cast<const T*>(gradient);
  const auto* x = static_cast<const T*>(from);
  auto* dx = static_cast<T*>(to);
  double in[kBlock], grad[kBlock], out[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    for (int64_t i = 0; i < count; ++i) in[i] = widen(x[at + i]);
    for (int64_t i = 0; i < count; ++i) grad[i] = widen(dy[at + i]);
    for (int64_t i = 0; i < count; ++i) {
      const Parts<kTermsOf<T>> p(in[i]);
      const double slope = kSlope + 3 * kSlope * kCubic * (p.near * p.near);
      out[i] = grad[i] * (p.s + p.near * slope * (p.e * p.r * p.r));
    }
    for (int64_t i = 0; i < count; ++i) dx[at + i] = narrow<T>(out[i]);
  }
}

// The switch over types, compiled for one target: what it calls is inlined and so is too.
#define GELU_FOR_TARGET(NAME, TARGET)                                                          \
  TARGET void forward_##NAME(Type type, const void* x, void* y, int64_t n) {                   \
    switch (type) {                                                                            \
      case Type::kFloat:                                                                       \
        return forward<float>(x, y, n);                                                        \
      case Type::kHalf:                                                                        \
        return forward<c10::Half>(x, y, n);                                                    \
      case Type::kBfloat16:                                                                    \
        return forward<c10::BFloat16>(x, y, n);                                                \
      case Type::kDouble:                                                                      \
        return forward<double>(x, y, n);                                                       \
    }                                                                                          \
  }                                                                                            \
  TARGET void backward_##NAME(Type type, const void* dy, const void* x, void* dx, int64_t n) { \
    switch (type) {                                                                            \
      case Type::kFloat:                                                                       \
        return backward<float>(dy, x, dx, n);                                                  \
      case Type::kHalf:                                                                        \
        return backward<c10::Half>(dy, x, dx, n);                                              \
      case Type::kBfloat16:                                                                    \
        return backward<c10::BFloat16>(dy, x, dx, n);                                          \
      case Type::kDouble:                                                                      \
        return backward<double>(dy, x, dx, n);                                                 \
    }                                                                                          \
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

void forward_cpu(Type type, const void* x, void* y, int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return forward_avx2(type, x, y, n);
#endif
  forward_plain(type, x, y, n);
}

void backward_cpu(Type type, const void* dy, const void* x, void* dx, int64_t n) {
#if defined(__x86_64__)
  if (has_avx2()) return backward_avx2(type, dy, x, dx, n);
#endif
  backward_plain(type, dy, x, dx, n);
}

}  // namespace gelu_approx
