// SPDX-License-Identifier: Apache-2.0
//
// Step 7: Hopper's own way. One thread copies whole tiles (TMA) into a ring of four; two warp groups
// multiply 64 x 256 each straight from shared memory (wgmma); mbarriers say what is full and empty.
#include "kernforge/hopper.cuh"

namespace step7 {

namespace hop = kernforge::hopper;

constexpr int kRows = 128, kColumns = 256, kDepth = 64, kStages = 4;
constexpr int kLeftBytes = kRows * 128, kStageBytes = kLeftBytes + kColumns * 128;
constexpr int kShared = kStages * (kStageBytes + 16);

__global__ void __launch_bounds__(384, 1)
    matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
           __nv_bfloat16* c, int columns, int depth) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  const uint32_t ring = hop::shared_address(memory);
  const uint32_t full = ring + kStages * kStageBytes, empty = full + 8 * kStages;
  const int row = blockIdx.y * kRows, column = blockIdx.x * kColumns;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      hop::mbarrier_init(full + 8 * i, 1);
      hop::mbarrier_init(empty + 8 * i, 2);  // warp groups that multiply
    }
    hop::mbarrier_init_fence();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    hop::fewer_registers<40>();
    if (threadIdx.x == 0) {
      for (int k = 0, i = 0; k < depth; k += kDepth, ++i) {
        const int stage = i % kStages;
        const uint32_t to = ring + stage * kStageBytes, ready = full + 8 * stage;
        hop::mbarrier_wait(empty + 8 * stage, i / kStages % 2 ^ 1);
        hop::mbarrier_expect(ready, kStageBytes);
        hop::load_box(to, &a, k, row, ready);
        for (int j = 0; j < kColumns / 64; ++j) {
          hop::load_box(to + kLeftBytes + j * 64 * 128, &b, column + j * 64, k, ready);
        }
      }
    }
  } else {
    hop::more_registers<232>();
    const int half = (group - 1) * 64;
    float d[kColumns / 2];
    for (int k = 0, i = 0; k < depth; k += kDepth, ++i) {
      const int stage = i % kStages;
      const uint32_t left = ring + stage * kStageBytes + half * 128;
      const uint32_t right = ring + stage * kStageBytes + kLeftBytes;
      hop::mbarrier_wait(full + 8 * stage, i / kStages % 2);
      hop::products_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {  // b has its columns side by side
        using Product = hop::Product<__nv_bfloat16, __nv_bfloat16, kColumns, hop::Major::kDepth,
                                     hop::Major::kRows>;
        Product::run(d, hop::descriptor(left) + step * 2,
                     hop::descriptor_by_rows<64 * 128>(right) + step * 128, k | step);
      }
      hop::products_commit();
      hop::products_wait<0>();
      if (threadIdx.x % 128 == 0) hop::mbarrier_arrive_at(empty + 8 * stage, 0);
    }
    hop::pin(d);
    const int lane = threadIdx.x % 32, r = row + half + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      __nv_bfloat16* to = c + int64_t{r} * columns + column + j * 8 + lane % 4 * 2;
      *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(d[4 * j], d[4 * j + 1]);
      *reinterpret_cast<__nv_bfloat162*>(to + int64_t{8} * columns) =
          __floats2bfloat162_rn(d[4 * j + 2], d[4 * j + 3]);
    }
  }
#endif
}

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  CUtensorMap of_a, of_b;
  constexpr auto kType = hop::kMapType<__nv_bfloat16>;
  hop::encode_map(&of_a, kType, 2, a, rows, depth, depth, kRows);
  hop::encode_map(&of_b, kType, 2, b, depth, columns, columns, kDepth);
  cudaFuncSetAttribute(matmul, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const dim3 grid(columns / kColumns, rows / kRows);
  matmul<<<grid, 384, kShared, stream>>>(of_a, of_b, c, columns, depth);
}

}  // namespace step7
