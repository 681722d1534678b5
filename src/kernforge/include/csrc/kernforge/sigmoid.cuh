// SPDX-License-Identifier: Apache-2.0
//
// silu and GELU of one float in a few instructions, for the epilogue of a matrix product: each is
// z s(z), and s the sigmoid of z P(z^2). silu: P is 1. GELU by the tanh formula:
// 2 sqrt(2 / pi) (1 + 0.044715 z^2). GELU by the normal distribution: fitted to its log-odds on
// [-5, 5], with a relative error below 3.7e-4 there, also in the tail.
//
// All take h = z / 2, which saves the formula by tanh a product.

#pragma once

namespace kernforge {

enum class Curve { kSilu, kGeluTanh, kGeluErf };

// How the sigmoid is computed. kTanh: one instruction, 2^-11 absolute. kExp: two, 2^-22 relative.
enum class Sigmoid { kTanh, kExp };

__device__ __forceinline__ float tanh_approx(float v) {
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(v));
  return t;
}
__device__ __forceinline__ float exp2_approx(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v));
  return e;
}
__device__ __forceinline__ float reciprocal_approx(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

// P(z^2) for z = 2 h, as the sigmoid takes it: it is (1 + tanh(h * odds)) / 2, and for kExp, where
// the factor -2 log2(e) is in the odds, 1 / (1 + 2^(h * odds)).
template <Curve kCurve, Sigmoid kSigmoid>
__device__ __forceinline__ float odds_of_twice(float h) {
  constexpr float kUnit = kSigmoid == Sigmoid::kTanh ? 1.f : -2.8853900817779268f;
  if constexpr (kCurve == Curve::kSilu) {
    return kUnit;
  } else if constexpr (kCurve == Curve::kGeluTanh) {
    constexpr float kFirst = 1.5957691216057308f * kUnit;  // 2 sqrt(2 / pi)
    return fmaf(kFirst * 4 * 0.044715f, h * h, kFirst);
  } else {
    const float square = fminf(h * h, 6.25f);
    float odds = fmaf(-1.913555076e-8f * 1024 * kUnit, square, 1.3516917800e-6f * 256 * kUnit);
    odds = fmaf(odds, square, -2.5327540675e-5f * 64 * kUnit);
    odds = fmaf(odds, square, -6.112007068955e-4f * 16 * kUnit);
    odds = fmaf(odds, square, 7.420286790910632e-2f * 4 * kUnit);
    return fmaf(odds, square, 1.5944643103717435f * kUnit);
  }
}

// s(z) for z = 2 h.
template <Curve kCurve>
__device__ __forceinline__ float sigmoid_of_twice(float h) {
  return reciprocal_approx(1.f + exp2_approx(h * odds_of_twice<kCurve, Sigmoid::kExp>(h)));
}

// z s(z) for z = 2 h.
template <Curve kCurve, Sigmoid kSigmoid>
__device__ __forceinline__ float activation_of_twice(float h) {
  if constexpr (kSigmoid == Sigmoid::kTanh) {
    return fmaf(h, tanh_approx(h * odds_of_twice<kCurve, kSigmoid>(h)), h);
  } else {
    return (h + h) * sigmoid_of_twice<kCurve>(h);
  }
}

}  // namespace kernforge
