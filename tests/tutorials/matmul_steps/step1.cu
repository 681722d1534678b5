// SPDX-License-Identifier: Apache-2.0
//
// Step 1: one thread a result. Neighbours in a warp have different rows.
#include <cuda_bf16.h>

namespace step1 {

__global__ void matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows,
                       int columns, int depth) {
  const int row = blockIdx.x * 16 + threadIdx.x, column = blockIdx.y * 16 + threadIdx.y;
  float sum = 0;
  for (int k = 0; k < depth; ++k) {
    sum += __bfloat162float(a[int64_t{row} * depth + k]) *
           __bfloat162float(b[int64_t{k} * columns + column]);
  }
  c[int64_t{row} * columns + column] = __float2bfloat16(sum);
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  matmul<<<dim3(rows / 16, columns / 16), dim3(16, 16), 0, stream>>>(a, b, c, rows, columns, depth);
}

}  // namespace step1
