// SPDX-License-Identifier: Apache-2.0
//
// Step 6: the tensor cores, one warp at a time (mma.sync, as from compute capability 8.0 on). A warp
// has 64 x 32 results; ldmatrix brings its operands; three tiles are on their way.
#include <cuda_bf16.h>
#include <cuda_pipeline.h>

#include <cstdint>

namespace step6 {

constexpr int kTile = 128, kDepth = 32, kStages = 3;
constexpr int kLeft = kDepth + 8, kRight = kTile + 8;  // padded: no two rows in one bank
constexpr int kShared = kStages * (kTile * kLeft + kDepth * kRight) * 2;

__global__ void __launch_bounds__(256, 2)
    matmul(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
           int depth) {
  extern __shared__ __align__(16) __nv_bfloat16 memory[];
  __nv_bfloat16 *left = memory, *right = memory + kStages * kTile * kLeft;
  const int t = threadIdx.x, lane = t % 32, warp_row = t / 32 % 2 * 64, warp_column = t / 64 * 32;
  const int row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const auto fetch = [&](int k, int stage) {
    if (k < depth) {
      for (int i = t; i < kTile * kDepth / 8; i += 256) {
        const int line = i / (kDepth / 8), at = i % (kDepth / 8) * 8;
        __pipeline_memcpy_async(left + (stage * kTile + line) * kLeft + at,
                                a + int64_t{row + line} * depth + k + at, 16);
        const int below = i / (kTile / 8), beside = i % (kTile / 8) * 8;
        __pipeline_memcpy_async(right + (stage * kDepth + below) * kRight + beside,
                                b + int64_t{k + below} * columns + column + beside, 16);
      }
    }
    __pipeline_commit();
  };
  const auto address = [](const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
  };
  float d[4][4][4] = {};
  for (int stage = 0; stage < kStages - 1; ++stage) fetch(stage * kDepth, stage);
  for (int k = 0, stage = 0; k < depth; k += kDepth, stage = (stage + 1) % kStages) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();  // this tile is there, and all have read the one that is overwritten next
    fetch(k + (kStages - 1) * kDepth, (stage + kStages - 1) % kStages);
#pragma unroll
    for (int step = 0; step < kDepth; step += 16) {
      uint32_t x[4][4], y[4][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int line = warp_row + i * 16 + lane % 16, at = step + lane / 16 * 8;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                     : "r"(address(left + (stage * kTile + line) * kLeft + at)));
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int below = step + lane % 16, beside = warp_column + j * 8;
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(y[j][0]), "=r"(y[j][1])
                     : "r"(address(right + (stage * kDepth + below) * kRight + beside)));
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float(&s)[4] = d[i][j];
          asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
              "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
              : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
              : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j][0]),
                "r"(y[j][1]));
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int r = row + warp_row + i * 16 + lane / 4;
      const int at = column + warp_column + j * 8 + lane % 4 * 2;
      *reinterpret_cast<__nv_bfloat162*>(c + int64_t{r} * columns + at) =
          __floats2bfloat162_rn(d[i][j][0], d[i][j][1]);
      *reinterpret_cast<__nv_bfloat162*>(c + int64_t{r + 8} * columns + at) =
          __floats2bfloat162_rn(d[i][j][2], d[i][j][3]);
    }
  }
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  cudaFuncSetAttribute(matmul, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const dim3 grid(columns / kTile, rows / kTile);
  matmul<<<grid, 256, kShared, stream>>>(a, b, c, rows, columns, depth);
}

}  // namespace step6
