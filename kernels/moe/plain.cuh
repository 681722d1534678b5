// SPDX-License-Identifier: Apache-2.0
//
// Products of sorted tokens with the weights of their experts, of any sizes and addresses, on any
// GPU: no tensor cores, each product exact in the type that sums.

#pragma once

#include <cuda_fp8.h>

#include "kernforge/dtype.cuh"
#include "sort.cuh"

namespace moe::plain {

constexpr int kThreads = 256, kTokens = 64, kColumns = 64, kDepth = 16;

// The weights of all experts, [experts, rows, depth]; of bytes (e4m3) a factor for each block.
template <class T>
struct Weights {
  const T* all;
  int64_t rows, depth;
  const float* factors;

  __device__ __forceinline__ auto at(int64_t expert, int64_t row, int64_t k) const {
    const T own = all[(expert * rows + row) * depth + k];
    if constexpr (sizeof(T) == 1) {
      const int64_t down = (rows + kFactorBlock - 1) / kFactorBlock;
      const int64_t across = (depth + kFactorBlock - 1) / kFactorBlock;
      const __half wide(__nv_cvt_fp8_to_halfraw(own, __NV_E4M3));
      return __half2float(wide) *
             factors[(expert * down + row / kFactorBlock) * across + k / kFactorBlock];
    } else {
      return kernforge::widen(own);
    }
  }
};

// 16 x 16 threads, each with 4 tokens and 4 columns, of the gate and of up with kGated. `w` is
// [experts, columns, depth], or [experts, 2 columns, depth]; `to` has `columns`, `both`, which
// may be nullptr, has gate and up. V: of a weight.
template <class T, class V, bool kGated>
static __global__ void __launch_bounds__(kThreads)
    multiply(const Weights<V> w, const T* from, T* to, T* both, const int* tiles_in_all,
             const sorting::Tile* tiles, const int64_t columns, const int64_t depth) {
  kernforge::grid_dependency_synchronize();
  constexpr int kHalves = kGated ? 2 : 1;
  // Four numbers that lie side by side are read at once.
  __shared__ __align__(16) float left[kDepth][kTokens + 4], right[kHalves][kDepth][kColumns + 4];
  const int64_t across = (columns + kColumns - 1) / kColumns, count = *tiles_in_all * across;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const sorting::Tile tile = tiles[i / across];
    const int64_t column = i % across * kColumns;
    float sums[kHalves][4][4] = {};
    // What comes next is on its way while the threads multiply.
    float next_left[4], next_right[kHalves][4];
    const auto fetch = [&](int64_t k) {
      const int64_t at = k + tx;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int line = ty + j * 16;
        const bool in_token = at < depth && line < tile.tokens;
        next_left[j] = in_token ? kernforge::widen(from[(tile.row + line) * depth + at]) : 0.f;
        const bool in_column = at < depth && column + line < columns;
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const int64_t row = half * columns + column + line;
          next_right[half][j] = in_column ? w.at(tile.expert, row, at) : 0.f;
        }
      }
    };
    fetch(0);
    for (int64_t k = 0; k < depth; k += kDepth) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int line = ty + j * 16;
        left[tx][line] = next_left[j];
#pragma unroll
        for (int half = 0; half < kHalves; ++half) right[half][tx][line] = next_right[half][j];
      }
      __syncthreads();
      fetch(k + kDepth);
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const float4 by_row = *reinterpret_cast<const float4*>(&left[d][ty * 4]);
        const float rows[4] = {by_row.x, by_row.y, by_row.z, by_row.w};
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          const float4 by_column = *reinterpret_cast<const float4*>(&right[half][d][tx * 4]);
          const float weights[4] = {by_column.x, by_column.y, by_column.z, by_column.w};
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
              float& sum = sums[half][r][c];
              sum = fma(rows[r], weights[c], sum);
            }
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int line = ty * 4 + r;
        const int64_t own = column + tx * 4 + c;
        if (line >= tile.tokens || own >= columns) continue;
        float value = sums[0][r][c];
        if constexpr (kGated) {
          const float up = sums[kHalves - 1][r][c];
          if (both != nullptr) {
            T* kept = both + (tile.row + line) * 2 * columns + own;
            kept[0] = kernforge::narrow<T>(value);
            kept[columns] = kernforge::narrow<T>(up);
          }
          value = value / (1 + expf(-value)) * up;
        }
        to[(tile.row + line) * columns + own] = kernforge::narrow<T>(value);
      }
    }
  }
}

}  // namespace moe::plain
