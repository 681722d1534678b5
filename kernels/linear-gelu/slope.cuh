// SPDX-License-Identifier: Apache-2.0
//
// dz = dy * gelu'(z), and the sums of its columns in the same pass: a block sums some rows of some
// columns, a second kernel the blocks. Both in one order, so the bits are the same every time.

#pragma once

#include <cstdint>

#include "formula.h"
#include "kernforge/dtype.cuh"

namespace linear_gelu::slopes {

constexpr int kLanes = 32, kLines = 8;  // threads of a block along a row, and rows at a time

template <class T, Formula kFormula, int kVector>
__global__ void __launch_bounds__(kLanes* kLines)
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
    for (int64_t row = first + line; row < last; row += kLines) {
      const int64_t at = row * columns + column;
      const V grad = *reinterpret_cast<const V*>(dy + at), of = *reinterpret_cast<const V*>(z + at);
      V out;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const W d = kernforge::widen(grad.at[i]) * slope<kFormula>(kernforge::widen(of.at[i]));
        out.at[i] = kernforge::narrow<T>(d);
        sums[i] += d;
      }
      *reinterpret_cast<V*>(dz + at) = out;
    }
  }
  if (partial == nullptr) return;
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

template <class T>
__global__ void __launch_bounds__(256)
    sum_blocks(const kernforge::widened_t<T>* __restrict__ partial, T* __restrict__ sums,
               int64_t columns, int blocks) {
  const int64_t c = int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (c >= columns) return;
  kernforge::widened_t<T> sum = 0;
  for (int i = 0; i < blocks; ++i) sum += partial[i * columns + c];
  sums[c] = kernforge::narrow<T>(sum);
}

}  // namespace linear_gelu::slopes
