// SPDX-License-Identifier: Apache-2.0
//
// GELU of one float in a matrix product's epilogue: of half types as kernforge/sigmoid.cuh has it,
// of float32 by formula.h.

#pragma once

#include "formula.h"
#include "kernforge/sigmoid.cuh"

namespace linear_gelu {

using kernforge::Sigmoid;

template <Formula kFormula>
constexpr kernforge::Curve kCurve =
    kFormula == Formula::kTanh ? kernforge::Curve::kGeluTanh : kernforge::Curve::kGeluErf;

// What an epilogue calls. `apply` takes z times `scale()`.
template <class T, Formula kFormula, Sigmoid kSigmoid>
struct Activation {
  template <class W>
  static __device__ __forceinline__ W of(W z) {
    return of_scaled(static_cast<W>(scale()) * z);
  }
  static __device__ __forceinline__ float scale() { return sizeof(T) == 2 ? 0.5f : 1.f; }
  template <int kCount>
  __device__ __forceinline__ void apply(float* v) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = of_scaled(v[i]);
  }

 private:
  template <class W>
  static __device__ __forceinline__ W of_scaled(W z) {
    if constexpr (sizeof(T) == 2) {
      return kernforge::activation_of_twice<kCurve<kFormula>, kSigmoid>(z);
    } else {
      return gelu<kFormula>(z);
    }
  }
};

}  // namespace linear_gelu
