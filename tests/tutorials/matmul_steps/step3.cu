// SPDX-License-Identifier: Apache-2.0
//
// Step 3: a block loads tiles of 32 x 32 into shared memory, and each number is used 32 times.
#include <cuda_bf16.h>

namespace step3 {

constexpr int kTile = 32;

__global__ void matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows,
                       int columns, int depth) {
  __shared__ float left[kTile][kTile], right[kTile][kTile];
  const int x = threadIdx.x, y = threadIdx.y;
  const int row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (int k = 0; k < depth; k += kTile) {
    left[y][x] = __bfloat162float(a[int64_t{row} * depth + k + x]);
    right[y][x] = __bfloat162float(b[int64_t{k + y} * columns + column]);
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[y][i] * right[i][x];
    __syncthreads();
  }
  c[int64_t{row} * columns + column] = __float2bfloat16(sum);
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  const dim3 grid(columns / kTile, rows / kTile);
  matmul<<<grid, dim3(kTile, kTile), 0, stream>>>(a, b, c, rows, columns, depth);
}

}  // namespace step3
