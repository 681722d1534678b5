// SPDX-License-Identifier: Apache-2.0
//
// The slope of GELU, and dz = dy * gelu'(z) with the sums of its columns in the same pass: a block
// sums some rows of some columns, a second kernel the blocks. Both in one order, so the bits are
// the same every time.

#pragma once

#include <cstdint>

#include "formula.h"
#include "gelu.cuh"
#include "kernforge/dtype.cuh"

namespace linear_gelu::slopes {

constexpr int kLanes = 32, kLines = 8;  // threads of a block along a row, and rows at a time

// Half types: some units in the 20th place, and of the normal distribution what sigmoid.cuh says.
template <class T, Formula kFormula, class W>
__device__ __forceinline__ W slope_of(W of) {
  if constexpr (sizeof(T) == 2) {
    const float z = within(of), size = fabsf(z);
    if constexpr (kFormula == Formula::kTanh) {
      constexpr float kTwice = 1.5957691216057308f, kCubic = 0.044715f;
      constexpr float kLog2e = 1.4426950408889634f;
      const float square = z * z;
      const float e =
          kernforge::exp2_approx(size * fmaf(-kLog2e * kTwice * kCubic, square, -kLog2e * kTwice));
      const float r = kernforge::reciprocal_approx(1.f + e), s = z < 0 ? e * r : r;
      return fmaf(z * fmaf(3 * kTwice * kCubic, square, kTwice), e * r * r, s);
    } else {
      constexpr float kDensity = 0.3989422804014327f, kHalfLog2e = 0.7213475204444817f;
      return fmaf(z * kDensity, kernforge::exp2_approx(-kHalfLog2e * z * z),
                  kernforge::sigmoid_of_twice<kCurve<kFormula>>(0.5f * z));
    }
  } else {
    return slope<kFormula>(of);
  }
}

template <class T, Formula kFormula, int kVector>
static __global__ void __launch_bounds__(kLanes* kLines)
    multiply(const T* __restrict__ dy, const T* __restrict__ z, T* __restrict__ dz,
             kernforge::widened_t<T>* __restrict__ partial, int64_t rows, int64_t columns,
             int64_t rows_of_block) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kVector>;
  const int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  const int64_t column = (int64_t{blockIdx.x} * kLanes + lane) * kVector;
  const int64_t first = blockIdx.y * rows_of_block;
  const int64_t last = first + rows_of_block < rows ? first + rows_of_block : rows;
  W sums[kVector] = {};
  if (column < columns) {
    const auto vector = [&](const T* from, int64_t row) {
      return *reinterpret_cast<const V*>(from + row * columns + column);
    };
    const auto finish = [&](const V& grad, const V& of, int64_t row) {
      V out;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const W d =
            kernforge::widen(grad.at[i]) * slope_of<T, kFormula>(kernforge::widen(of.at[i]));
        out.at[i] = kernforge::narrow<T>(d);
        sums[i] += d;
      }
      *reinterpret_cast<V*>(dz + row * columns + column) = out;
    };
    int64_t row = first + line;
    for (; row + kLines < last; row += 2 * kLines) {  // two rows on their way
      const V grad = vector(dy, row), of = vector(z, row);
      const V next_grad = vector(dy, row + kLines), next_of = vector(z, row + kLines);
      finish(grad, of, row);
      finish(next_grad, next_of, row + kLines);
    }
    if (row < last) finish(vector(dy, row), vector(z, row), row);
  }
  __shared__ W shared[kLines][kVector][kLanes];
#pragma unroll
  for (int i = 0; i < kVector; ++i) shared[line][i][lane] = sums[i];
  __syncthreads();
  for (int i = line; i < kVector; i += kLines) {
    const int64_t c = (int64_t{blockIdx.x} * kLanes + lane) * kVector + i;
    W sum = 0;
#pragma unroll
    for (int from = 0; from < kLines; ++from) sum += shared[from][i][lane];
    if (c < columns) partial[blockIdx.y * columns + c] = sum;
  }
}

// A warp has 32 columns, the warps of a block share the parts.
template <class T>
static __global__ void __launch_bounds__(1024)
    sum_blocks(const kernforge::widened_t<T>* __restrict__ partial, T* __restrict__ sums,
               int64_t columns, int blocks) {
  using W = kernforge::widened_t<T>;
  __shared__ W shared[32][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t c = int64_t{blockIdx.x} * 32 + lane;
  W sum = 0;
  if (c < columns) {
#pragma unroll 8
    for (int i = warp; i < blocks; i += 32) sum += partial[i * columns + c];
  }
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= columns) return;
#pragma unroll
  for (int i = 1; i < 32; ++i) sum += shared[i][lane];
  sums[c] = kernforge::narrow<T>(sum);
}

}  // namespace linear_gelu::slopes
