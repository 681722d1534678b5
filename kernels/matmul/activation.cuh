// SPDX-License-Identifier: Apache-2.0
//
// The activations on NVIDIA GPUs, chosen when a kernel is launched.

#pragma once

#include "kernforge/sigmoid.cuh"
#include "matmul.h"

namespace matmul {

// For the epilogue of a product: of half types, and of what was multiplied as tf32.
template <class T>
struct Chosen {
  Activation which;

  __device__ __forceinline__ float scale() const {
    return which == Activation::kNone || which == Activation::kRelu ? 1.f : 0.5f;
  }
  // Of values times scale().
  template <int kCount>
  __device__ __forceinline__ void apply(float* v) const {
    using kernforge::Curve;
    if (which == Activation::kRelu) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) v[i] = v[i] < 0 ? 0.f : v[i];  // NaN stays
    } else if (which == Activation::kGeluTanh) {
      curved<Curve::kGeluTanh, kCount>(v);
    } else if (which == Activation::kGeluErf) {
      curved<Curve::kGeluErf, kCount>(v);
    } else if (which == Activation::kSilu) {
      curved<Curve::kSilu, kCount>(v);
    }
  }

 private:
  template <kernforge::Curve kCurve, int kCount>
  static __device__ __forceinline__ void curved(float* v) {
    using kernforge::Sigmoid;
    constexpr Sigmoid kSigmoid = sizeof(T) == 2 ? Sigmoid::kTanh : Sigmoid::kExp;
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = kernforge::activation_of_twice<kCurve, kSigmoid>(v[i]);
  }
};

}  // namespace matmul
