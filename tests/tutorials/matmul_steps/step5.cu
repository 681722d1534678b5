// SPDX-License-Identifier: Apache-2.0
//
// Step 5: 16 bytes a load, and the next tile is on its way (cp.async) while this one is multiplied.
#include <cuda_bf16.h>
#include <cuda_pipeline.h>

namespace step5 {

constexpr int kTile = 128, kDepth = 16, kEach = 8;

__global__ void __launch_bounds__(256)
    matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
           int depth) {
  __shared__ __align__(16) __nv_bfloat16 left[2][kTile][kDepth + 8], right[2][kDepth][kTile];
  const int t = threadIdx.x, tx = t % 16, ty = t / 16;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const auto fetch = [&](int k, int buffer) {
    __pipeline_memcpy_async(&left[buffer][t / 2][t % 2 * 8],
                            a + int64_t{row + t / 2} * depth + k + t % 2 * 8, 16);
    __pipeline_memcpy_async(&right[buffer][t / 16][t % 16 * 8],
                            b + int64_t{k + t / 16} * columns + column + t % 16 * 8, 16);
    __pipeline_commit();
  };
  float sums[kEach][kEach] = {};
  fetch(0, 0);
  for (int k = 0, buffer = 0; k < depth; k += kDepth, buffer ^= 1) {
    if (k + kDepth < depth) fetch(k + kDepth, buffer ^ 1);
    __pipeline_wait_prior(k + kDepth < depth ? 1 : 0);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      float x[kEach], y[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        x[i] = __bfloat162float(left[buffer][ty * kEach + i][d]);
      }
      const uint4 eight = *reinterpret_cast<const uint4*>(&right[buffer][d][tx * kEach]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        y[i] = __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(&eight)[i]);
      }
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
    __nv_bfloat162 four[kEach / 2];
#pragma unroll
    for (int j = 0; j < kEach / 2; ++j) {
      four[j] = __floats2bfloat162_rn(sums[i][2 * j], sums[i][2 * j + 1]);
    }
    *reinterpret_cast<uint4*>(c + int64_t{row + ty * kEach + i} * columns + column + tx * kEach) =
        *reinterpret_cast<const uint4*>(four);
  }
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  const dim3 grid(columns / kTile, rows / kTile);
  matmul<<<grid, 256, 0, stream>>>(a, b, c, rows, columns, depth);
}

}  // namespace step5
