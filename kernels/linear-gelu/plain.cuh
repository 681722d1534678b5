// SPDX-License-Identifier: Apache-2.0
//
// y = gelu(x w^T + b) of any sizes, strides and addresses, on any GPU: no tensor cores, each
// product exact in the type that sums. For float32 that may not be rounded to tf32, float64, and
// what the other paths do not take.

#pragma once

#include <cstdint>

#include "kernforge/dtype.cuh"

namespace linear_gelu::plain {

struct Problem {
  int64_t rows, columns, depth, x_stride, w_stride;
};

constexpr int kThreads = 256, kDepth = 16;

// 16 x 16 threads, each with kTile / 16 rows and as many columns, four side by side.
template <class T, class Activation, int kTile>
static __global__ void __launch_bounds__(kThreads)
    linear(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
           T* __restrict__ y, T* __restrict__ z, const Problem p) {
  using W = kernforge::widened_t<T>;
  constexpr int kEach = kTile / 16, kLoads = kTile * kDepth / kThreads;
  __shared__ __align__(16) W left[kDepth][kTile + 4], right[kDepth][kTile + 4];
  const int64_t across = (p.columns + kTile - 1) / kTile;
  const int64_t row = blockIdx.x / across * kTile, column = blockIdx.x % across * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int k_of_load = threadIdx.x % kDepth, line_of_load = threadIdx.x / kDepth;

  T of_x[kLoads], of_w[kLoads];
  const auto fetch = [&](int64_t k) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int64_t at = k + k_of_load, line = line_of_load + i * (kThreads / kDepth);
      const bool in_x = at < p.depth && row + line < p.rows;
      const bool in_w = at < p.depth && column + line < p.columns;
      of_x[i] = in_x ? x[(row + line) * p.x_stride + at] : kernforge::narrow<T>(0);
      of_w[i] = in_w ? w[(column + line) * p.w_stride + at] : kernforge::narrow<T>(0);
    }
  };
  W sums[kEach][kEach] = {};
  fetch(0);
  for (int64_t k = 0; k < p.depth; k += kDepth) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int line = line_of_load + i * (kThreads / kDepth);
      left[k_of_load][line] = kernforge::widen(of_x[i]);
      right[k_of_load][line] = kernforge::widen(of_w[i]);
    }
    __syncthreads();
    fetch(k + kDepth);
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      W a[kEach], b[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        a[i] = left[d][i / 4 * 64 + ty * 4 + i % 4];
        b[i] = right[d][i / 4 * 64 + tx * 4 + i % 4];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] = fma(a[i], b[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int64_t r = row + i / 4 * 64 + ty * 4 + i % 4, c = column + j / 4 * 64 + tx * 4 + j % 4;
      if (r >= p.rows || c >= p.columns) continue;
      W sum = sums[i][j];
      if (bias != nullptr) sum += kernforge::widen(bias[c]);
      if (z != nullptr) z[r * p.columns + c] = kernforge::narrow<T>(sum);
      y[r * p.columns + c] = kernforge::narrow<T>(Activation::of(sum));
    }
  }
}

}  // namespace linear_gelu::plain
