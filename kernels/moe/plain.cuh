// SPDX-License-Identifier: Apache-2.0
//
// Products of sorted tokens with the weights of their experts, of any sizes and addresses, on any
// GPU: no tensor cores, each product exact in the type that sums. Right, not tuned.

#pragma once

#include <cuda_fp8.h>

#include "kernforge/dtype.cuh"
#include "sort.cuh"

namespace moe::plain {

constexpr int kThreads = 256, kTokens = 64, kColumns = 32, kDepth = 16;

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

// 16 x 16 threads, each with 4 tokens and 2 columns, of the gate and of up with kGated. `w` is
// [experts, columns, depth], or [experts, 2 columns, depth]; `to` has `columns`, `both`, which
// may be nullptr, has gate and up. V: of a weight.
template <class T, class V, bool kGated>
static __global__ void __launch_bounds__(kThreads)
    multiply(const Weights<V> w, const T* from, T* to, T* both, const int* tiles_in_all,
             const sorting::Tile* tiles, const int64_t columns, const int64_t depth) {
  kernforge::grid_dependency_synchronize();
  using W = kernforge::widened_t<T>;
  constexpr int kHalves = kGated ? 2 : 1;
  __shared__ W left[kDepth][kTokens + 4], right[kHalves][kDepth][kColumns + 4];
  const int64_t across = (columns + kColumns - 1) / kColumns, count = *tiles_in_all * across;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  for (int64_t i = blockIdx.x; i < count; i += gridDim.x) {
    const sorting::Tile tile = tiles[i / across];
    const int64_t column = i % across * kColumns;
    W sums[kHalves][4][2] = {};
    for (int64_t k = 0; k < depth; k += kDepth) {
      const int64_t at = k + tx;
      for (int line = ty; line < kTokens; line += 16) {
        const bool in = at < depth && line < tile.tokens;
        left[tx][line] =
            in ? static_cast<W>(kernforge::widen(from[(tile.row + line) * depth + at])) : W{0};
      }
      for (int half = 0; half < kHalves; ++half) {
        for (int line = ty; line < kColumns; line += 16) {
          const bool in = at < depth && column + line < columns;
          const int64_t row = half * columns + column + line;
          right[half][tx][line] = in ? static_cast<W>(w.at(tile.expert, row, at)) : W{0};
        }
      }
      __syncthreads();
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
#pragma unroll
          for (int r = 0; r < 4; ++r) {
#pragma unroll
            for (int c = 0; c < 2; ++c) {
              W& sum = sums[half][r][c];
              sum = fma(left[d][ty + r * 16], right[half][d][tx + c * 16], sum);
            }
          }
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int line = ty + r * 16;
        const int64_t own = column + tx + c * 16;
        if (line >= tile.tokens || own >= columns) continue;
        W value = sums[0][r][c];
        if constexpr (kGated) {
          const W up = sums[kHalves - 1][r][c];
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
