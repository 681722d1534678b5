// SPDX-License-Identifier: Apache-2.0
//
// What follows a sum of kernforge/plain_tiles.cuh: the bias and GELU. For float32 that may not be
// rounded to tf32, float64, and what the other paths do not take.

#pragma once

#include <cstdint>

#include "kernforge/dtype.cuh"
#include "kernforge/plain_tiles.cuh"

namespace linear_gelu::plain {

template <class T, class Activation>
struct Finish {
  using W = kernforge::widened_t<T>;
  const T* bias;
  T *y, *z;
  int64_t columns;

  __device__ __forceinline__ W left(T v) const { return kernforge::widen(v); }
  __device__ __forceinline__ W right(T v) const { return kernforge::widen(v); }
  __device__ __forceinline__ void operator()(W sum, int64_t row, int64_t column, int64_t) const {
    if (bias != nullptr) sum += kernforge::widen(bias[column]);
    if (z != nullptr) z[row * columns + column] = kernforge::narrow<T>(sum);
    y[row * columns + column] = kernforge::narrow<T>(Activation::of(sum));
  }
};

}  // namespace linear_gelu::plain
