// SPDX-License-Identifier: Apache-2.0
//
// GELU by its tanh formula on NVIDIA GPUs, forward and backward; formulas in gelu_approx.h.
//
// Bound by memory: one read and one write an element (backward: two reads), which leaves an H200
// some 55 instructions for each float32 and 27 for each half.

#include "gelu_approx.h"
#include "kernforge/elementwise.cuh"

namespace gelu_approx {
namespace {

using kernforge::widened_t;

__device__ __forceinline__ float exp2_ftz(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}

__device__ __forceinline__ float reciprocal_ftz(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// From here on exp(-2 u) is 0 in the type that computes, and s is 0 or 1.
template <class W>
constexpr W kFar = sizeof(W) == 4 ? 16 : 40;

// What both directions need of one x: e = exp(-2 |u|), the reciprocal of 1 + e, and x within kFar.
template <class W>
struct Parts {
  W e, r, near;
  bool negative;

  __device__ __forceinline__ W s() const { return negative ? e * r : r; }
};

// Comparisons that a NaN fails, so that it stays.
template <class W>
__device__ __forceinline__ W within(W x) {
  return x > kFar<W> ? kFar<W> : x < -kFar<W> ? -kFar<W> : x;
}

// In double: all digits but the last few.
template <class T, std::enable_if_t<std::is_same_v<T, double>, int> = 0>
__device__ __forceinline__ Parts<double> parts(double x) {
  const double near = within(x), a = fabs(near);
  const double e = exp2(a * fma(kExponent * kCubic, a * a, kExponent));
  return {e, 1 / (1 + e), near, x < 0};
}

// For the half types: some units in the 22nd place.
template <class T, std::enable_if_t<sizeof(T) == 2, int> = 0>
__device__ __forceinline__ Parts<float> parts(float x) {
  const float near = within(x), a = fabsf(near);
  constexpr float kFirst = kExponent, kThird = kExponent * kCubic;
  const float e = exp2_ftz(a * fmaf(kThird, a * a, kFirst));
  return {e, reciprocal_ftz(1 + e), near, x < 0};
}

// In float32: an exponent of 30 that is rounded once is 2^-20 off, and exp2 of it as much. So what
// the two products lose is kept (`lost`), nearly all of it while the cubic term is the smaller one.
template <class T, std::enable_if_t<std::is_same_v<T, float>, int> = 0>
__device__ __forceinline__ Parts<float> parts(float x) {
  const float near = within(x), a = fabsf(near);
  constexpr float kFirst = kExponent, kThird = kExponent * kCubic;
  constexpr float kLn2 = 0.693147180559945309;
  const float square = a * a;
  const float factor = fmaf(kThird, square, kFirst);
  const float t = a * factor;
  const float lost = fmaf(a, fmaf(kThird, square, kFirst - factor), fmaf(a, factor, -t));
  const float rough = exp2_ftz(t);
  const float e = fmaf(rough, lost * kLn2, rough);
  return {e, reciprocal_ftz(1 + e), near, x < 0};
}

}  // namespace

template <class T>
struct Forward {
  using W = widened_t<T>;
  __device__ __forceinline__ W operator()(W x) const {
    const auto p = parts<T>(x);
    return (x < -kFar<W> ? -kFar<W> : x) * p.s();
  }
};

template <class T>
struct Backward {
  using W = widened_t<T>;
  __device__ __forceinline__ W operator()(W dy, W x) const {
    const auto p = parts<T>(x);
    constexpr W kFirst = kSlope, kThird = 3 * kSlope * kCubic;
    const W slope = fma(kThird * p.near, p.near, kFirst);
    return dy * (p.s() + p.near * slope * (p.e * p.r * p.r));
  }
};

namespace {

// Chosen by the bytes of one tensor, as measured on an H200 (README.md). A device with figures of
// its own gets a row of its own.
//
//   tensors              threads a block, vectors a thread   why
//   up to 512 KiB        256, a half                         up to 17 % faster
//   below 16 MiB         256, 1
//   16 to 256 MiB        128, 2                              5.46 us, where 256, 1 takes 5.75
//   from 256 MiB         128, 1                              2 vectors are 1 % slower
//   two inputs           256, 1 from 512 KiB                 2 vectors are slower
struct PolicySelector {
  template <class T, int kInputs, class Launch>
  static cudaError_t select(int64_t bytes, const kernforge::Device&, const Launch& launch) {
    constexpr int kVector = kernforge::kVectorLength<T>;
    if (bytes <= 512 << 10) {
      return launch(kernforge::ElementwisePolicy<256, kVector / 2, kVector / 2, uint32_t>{});
    }
    if constexpr (kInputs == 1) {
      if (bytes >= 256 << 20) return launch(kernforge::ElementwisePolicy<128, kVector, kVector>{});
      if (bytes >= 16 << 20) {
        return launch(kernforge::ElementwisePolicy<128, 2 * kVector, kVector>{});
      }
    }
    return launch(kernforge::ElementwisePolicy<256, kVector, kVector>{});
  }
};

}  // namespace

cudaError_t forward_launch(DType dtype, const void* x, void* y, int64_t n, cudaStream_t stream,
                           const kernforge::Strides<1>* strides) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    if (strides) {
      return kernforge::strided_elementwise<T>(Forward<T>{}, n, *strides, stream, y, x);
    }
    return kernforge::elementwise<T, PolicySelector>(Forward<T>{}, n, stream, y, x);
  });
}

cudaError_t backward_launch(DType dtype, const void* dy, const void* x, void* dx, int64_t n,
                            cudaStream_t stream, const kernforge::Strides<2>* strides) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    if (strides) {
      return kernforge::strided_elementwise<T>(Backward<T>{}, n, *strides, stream, dx, dy, x);
    }
    return kernforge::elementwise<T, PolicySelector>(Backward<T>{}, n, stream, dx, dy, x);
  });
}

}  // namespace gelu_approx
