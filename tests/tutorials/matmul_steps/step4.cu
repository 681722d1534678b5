// SPDX-License-Identifier: Apache-2.0
//
// Step 4: a thread has 8 x 8 results in registers. 16 numbers from shared memory give 64 products,
// where step 3 takes 2 for each.
#include <cuda_bf16.h>

namespace step4 {

constexpr int kTile = 128, kDepth = 16, kEach = 8;

__global__ void __launch_bounds__(256)
    matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
           int depth) {
  __shared__ float left[kDepth][kTile + 4], right[kDepth][kTile];
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  float sums[kEach][kEach] = {};
  for (int k = 0; k < depth; k += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth; i += 256) {
      const int line = i / kDepth, at = i % kDepth;
      left[at][line] = __bfloat162float(a[int64_t{row + line} * depth + k + at]);
      right[i / kTile][i % kTile] =
          __bfloat162float(b[int64_t{k + i / kTile} * columns + column + i % kTile]);
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[kEach], y[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = left[d][i / 4 * 64 + ty * 4 + i % 4];
#pragma unroll
      for (int i = 0; i < kEach; ++i) y[i] = right[d][i / 4 * 64 + tx * 4 + i % 4];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) sums[i][j] += x[i] * y[j];
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int r = row + i / 4 * 64 + ty * 4 + i % 4, at = column + j / 4 * 64 + tx * 4 + j % 4;
      c[int64_t{r} * columns + at] = __float2bfloat16(sums[i][j]);
    }
  }
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  const dim3 grid(columns / kTile, rows / kTile);
  matmul<<<grid, 256, 0, stream>>>(a, b, c, rows, columns, depth);
}

}  // namespace step4
