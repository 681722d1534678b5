// SPDX-License-Identifier: Apache-2.0
//
// GELU and its slope in the precision of W, float or double, on CPUs and GPUs.
//
// 1 + tanh(u) cancels for z far below 0, so z * sigmoid(2 u) is computed, and erfc likewise. As in
// torch, GELU of -inf is NaN (-inf * 0).

#pragma once

#include <cmath>

#include "linear_gelu.h"

namespace linear_gelu {

// From here on the distribution function is 0 or 1, so that no infinity meets a zero in the slope.
template <class W>
KERNFORGE_HOST_DEVICE inline W within(W z) {
  constexpr W kFar = 40;
  return z > kFar ? kFar : z < -kFar ? -kFar : z;  // NaN stays
}

template <Formula kFormula, class W>
KERNFORGE_HOST_DEVICE inline W gelu(W z) {
  if constexpr (kFormula == Formula::kTanh) {
    constexpr W kTwice = 1.5957691216057308, kCubic = 0.044715;
    return z / (1 + std::exp(-kTwice * (z + kCubic * z * z * z)));
  } else {
    constexpr W kRoot = 0.7071067811865476;
    return W{0.5} * z * std::erfc(-kRoot * z);
  }
}

template <Formula kFormula, class W>
KERNFORGE_HOST_DEVICE inline W slope(W of) {
  const W z = within(of);
  if constexpr (kFormula == Formula::kTanh) {
    constexpr W kTwice = 1.5957691216057308, kCubic = 0.044715;
    // e = exp(-2 |u|) never overflows; s (1 - s) is e / (1 + e)^2 on both sides.
    const W size = z < 0 ? -z : z;
    const W e = std::exp(-kTwice * (size + kCubic * size * size * size));
    const W r = 1 / (1 + e), s = z < 0 ? e * r : r;
    return s + z * kTwice * (1 + 3 * kCubic * z * z) * (e * r * r);
  } else {
    constexpr W kRoot = 0.7071067811865476, kDensity = 0.3989422804014327;
    return W{0.5} * std::erfc(-kRoot * z) + z * kDensity * std::exp(W{-0.5} * z * z);
  }
}

}  // namespace linear_gelu
