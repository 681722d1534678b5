// SPDX-License-Identifier: Apache-2.0
//
// GELU of one float in a matrix product's epilogue. y = z * s(z): s is the sigmoid of
// 2 sqrt(2 / pi) (z + 0.044715 z^3) for the tanh formula, and the normal distribution function
// else.
//
// For half types the latter is the sigmoid of z * P(z^2) with P fitted to its log-odds on [-5, 5],
// so both formulas cost one or two special-function instructions; its relative error there is below
// 3.7e-4, also in the tail. For float32 it is erfcf's.

#pragma once

#include "formula.h"

namespace linear_gelu {

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

// What the sigmoid is of at 2 h, over 2 h: the sigmoid is (1 + tanh(h * odds)) / 2, and for kExp,
// where the factor -2 log2(e) is in it, 1 / (1 + 2^(h * odds)).
template <Formula kFormula, Sigmoid kSigmoid>
__device__ __forceinline__ float odds_of_twice(float h) {
  constexpr float kUnit = kSigmoid == Sigmoid::kTanh ? 1.f : -2.8853900817779268f;
  if constexpr (kFormula == Formula::kTanh) {
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

// GELU of 2 h.
template <Formula kFormula, Sigmoid kSigmoid>
__device__ __forceinline__ float gelu_of_twice(float h) {
  const float exponent = h * odds_of_twice<kFormula, kSigmoid>(h);
  if constexpr (kSigmoid == Sigmoid::kTanh) {
    return fmaf(h, tanh_approx(exponent), h);
  } else {
    return (h + h) * reciprocal_approx(1.f + exp2_approx(exponent));
  }
}

// The normal distribution function of 2 h.
__device__ __forceinline__ float distribution_of_twice(float h) {
  return reciprocal_approx(1.f + exp2_approx(h * odds_of_twice<Formula::kErf, Sigmoid::kExp>(h)));
}

// What an epilogue calls. `of_scaled` takes half of z for half types, z for others.
template <class T, Formula kFormula, Sigmoid kSigmoid>
struct Activation {
  template <class W>
  static __device__ __forceinline__ W of(W z) {
    if constexpr (sizeof(T) == 2) {
      return gelu_of_twice<kFormula, kSigmoid>(0.5f * z);
    } else {
      return gelu<kFormula>(z);
    }
  }
  static __device__ __forceinline__ float of_scaled(float z) {
    if constexpr (sizeof(T) == 2) {
      return gelu_of_twice<kFormula, kSigmoid>(z);
    } else {
      return gelu<kFormula>(z);
    }
  }
};

// Likewise where time is the products': exact far in the tail, too.
template <Formula kFormula>
struct Exact {
  template <class W>
  static __device__ __forceinline__ W of(W z) {
    return gelu<kFormula>(z);
  }
};

}  // namespace linear_gelu
