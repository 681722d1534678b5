// SPDX-License-Identifier: Apache-2.0
//
// Products of sorted tokens with weights of 8 bits (e4m3) that have a factor for each block of 128
// by 128: the weights are halves of the bytes, the sums those of 16-bit tokens with them.
//
// As hopper.cuh, with tiles of 256 rows of a weight, at most 64 tokens and slices of 128 of the
// depth, one block of factors. A warp group reads its weights out of shared memory as the left side
// of wgmma wants them in registers, widens them there, exactly, and adds a slice's sums times the
// factor to those before. So a factor is never rounded.
//
// ldmatrix gives a thread 4 bytes side by side, where wgmma wants 2 numbers at 2q and 2 at 8 + 2q.
// So in every 16 of the depth the tokens lie in another order, that of `in_order`: those of the
// first product as they are copied, those of the second because the first takes its rows so.

#pragma once

#include "hopper.cuh"

namespace moe::hopper {

using Scaled = Shape<2 * kMostScaledTokens, 2, 4, 0>;  // a token has 256 bytes in a slice

// The number of 16 that is in place p.
__device__ __forceinline__ int in_order(int p) { return p % 8 / 2 * 4 + p % 2 + p / 8 * 2; }

struct Factors {
  const float* all;  // [experts, rows, columns]
  int rows, columns;
};

// Four e4m3, side by side, as two pairs of T: times 2^-8 for __half. A NaN becomes 480.
template <class T>
__device__ __forceinline__ void widen_four(uint32_t four, uint32_t* low, uint32_t* high) {
  const uint32_t pairs[2] = {__byte_perm(four, 0, 0x1404), __byte_perm(four, 0, 0x3424)};
  uint32_t out[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (std::is_same_v<T, __half>) {
      out[i] = (pairs[i] & 0x80008000u) | (pairs[i] >> 1 & 0x3F803F80u);
    } else {
      const uint32_t small = (pairs[i] & 0x80008000u) | (pairs[i] >> 4 & 0x07F007F0u);
      constexpr uint32_t kTwoTo120 = 0x7B807B80u;
      asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out[i]) : "r"(small), "r"(kTwoTo120));
    }
  }
  *low = out[0], *high = out[1];
}

__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

template <class T, bool kGated>
struct ScaledConsumer : Consumer<T, Scaled, kGated> {
  using Base = Consumer<T, Scaled, kGated>;
  using Base::consumer, Base::lane, Base::parity, Base::slices, Base::stage, Base::warp;
  Factors factors;
  int second;

  template <int kN>
  __device__ __forceinline__ void tile(const Work& work) {
    float sums[2][kN / 2] = {};
    const float* of_rows[2][2];
#pragma unroll
    for (int block = 0; block < 2; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int own = lane / 4 + half * 8;
        const int row = work.column + block * second + consumer * 64 + warp * 16 +
                        (kGated ? in_order(own) : own);
        of_rows[block][half] =
            factors.all + (int64_t{work.expert} * factors.rows + min(row / 128, factors.rows - 1)) *
                              factors.columns;
      }
    }
    // What this lane tells ldmatrix: the address of one row of one of four matrices.
    const int place = lane % 16, row = kGated ? in_order(place) : place;
    const uint32_t own = (consumer * 64 + warp * 16 + row) * 128;
    for (int slice = 0; slice < slices; ++slice) {
      float factor[2][2];
#pragma unroll
      for (int block = 0; block < 2; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          factor[block][half] = __ldg(of_rows[block][half] + slice);
          if constexpr (std::is_same_v<T, __half>) factor[block][half] *= 256.f;
        }
      }
      ptx::mbarrier_wait(this->full + 8 * stage, parity);
      const uint32_t at = this->ring + stage * Scaled::kStageBytes;
      const uint64_t right = ptx::descriptor(at + Scaled::kLeftBytes);
      float d[2][kN / 2];
      uint32_t left[2][8][4];
#pragma unroll
      for (int block = 0; block < 2; ++block) {
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          uint32_t four[4];
          load_matrices(four, at + block * (Scaled::kLeftBytes / 2) + own +
                                  (((pair * 2 + lane / 16) ^ (row & 7)) << 4));
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t (&step)[4] = left[block][pair * 2 + i / 2];
            widen_four<T>(four[i], &step[i % 2], &step[2 + i % 2]);
          }
        }
        ptx::products_fence();
#pragma unroll
        for (int step = 0; step < 8; ++step) {
          ptx::ProductOfRegisters<T, kN>::run(
              d[block], left[block][step],
              right + step / 4 * (kMostScaledTokens * 8) + step % 4 * 2, step);
        }
        ptx::products_commit();
      }
      ptx::products_wait<0>();
#pragma unroll
      for (int block = 0; block < 2; ++block) ptx::pin(d[block]);
      this->release(stage);
      if (++stage == Scaled::kStages) stage = 0, parity ^= 1;
#pragma unroll
      for (int block = 0; block < 2; ++block) {
#pragma unroll
        for (int i = 0; i < kN / 2; ++i) {
          sums[block][i] = fmaf(d[block][i], factor[block][i / 2 % 2], sums[block][i]);
        }
      }
    }
    this->template finish<kN>(sums, work);
  }
};

template <class T, bool kGated>
static __global__ void __launch_bounds__(Scaled::kThreads, 1)
    scaled(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap by_64,
           const __grid_constant__ CUtensorMap by_16, const __grid_constant__ CUtensorMap to,
           const Factors factors, const int* tiles_in_all, const Tile* tiles,
           const Problem problem) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const uint32_t ring = dynamic_shared_memory();
  const uint32_t out = ring + Scaled::kStages * Scaled::kStageBytes;
  const uint32_t full = out + Scaled::kGroups * kOutBytes, empty = full + 8 * Scaled::kStages;
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&weights);
    ptx::prefetch_map(&by_64);
    ptx::prefetch_map(&by_16);
    ptx::prefetch_map(&to);
    for (int i = 0; i < Scaled::kStages; ++i) {
      ptx::mbarrier_init(full + 8 * i, 1);
      ptx::mbarrier_init(empty + 8 * i, Scaled::kGroups);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  // The first product takes what the copy of the tokens wrote, and its weights by a table that was
  // whole before the copy began.
  if constexpr (kGated) kernforge::grid_dependency_synchronize();
  if (problem.early) cudaTriggerProgrammaticLaunchCompletion();

  const int slices = (problem.depth + 127) / 128;
  const int count = __ldcg(tiles_in_all) * problem.across;
  if (group == 0) {
    ptx::fewer_registers<40>();
    if (threadIdx.x == 0) {
      load_tiles<Scaled, 2>(weights, by_64, by_16, tiles, problem, ring, full, empty, slices,
                            count);
    }
  } else {
    ptx::more_registers<232>();
    const int consumer = group - 1;
    ScaledConsumer<T, kGated> own{
        {ring, out + consumer * kOutBytes, full, empty, slices, 0, consumer,
         static_cast<int>(threadIdx.x % 128 / 32), static_cast<int>(threadIdx.x % 32), &to},
        factors,
        problem.second};
    for (int i = blockIdx.x; i < count; i += gridDim.x) {
      const Work work = work_at(i, tiles, problem);
      if (work.tokens <= 16) {
        own.template tile<16>(work);
      } else if (work.tokens <= 32) {
        own.template tile<32>(work);
      } else {
        own.template tile<64>(work);
      }
    }
    if (own.warp == 0 && own.lane < 4) ptx::stores_have_read<0>();
  }
#endif
}

// Rows of x to each of their places, in the order of `in_order`; one block a token. 16 bits a
// number, the width is a multiple of 16.
static __global__ void __launch_bounds__(128)
    spread_in_order(const uint4* x, uint4* to, const int* positions, const int top,
                    const int sixteens) {
  kernforge::grid_dependency_synchronize();
  const int64_t token = blockIdx.x;
  for (int c = threadIdx.x; c < sixteens; c += 128) {
    const uint4 a = x[(token * sixteens + c) * 2], b = x[(token * sixteens + c) * 2 + 1];
    for (int j = 0; j < top; ++j) {
      const int64_t row = positions[token * top + j];
      if (row < 0) continue;
      to[(row * sixteens + c) * 2] = {a.x, a.z, b.x, b.z};
      to[(row * sixteens + c) * 2 + 1] = {a.y, a.w, b.y, b.w};
    }
  }
}

template <class T, bool kGated>
cudaError_t multiply_scaled(const kernforge::Device& device, const void* weights,
                            int64_t weight_rows, int64_t depth, const Factors& factors,
                            const Matrix& from, const Matrix& to, const sorting::Tables& tables,
                            int64_t most_tiles, const Problem& problem, cudaStream_t stream) {
  CUtensorMap of_weights, by_64, by_16, of_to;
  const auto encode = [](CUtensorMap* map, const Matrix& m, int rows) {
    return ptx::encode_map(map, ptx::kMapType<T>, 2, m.data, m.rows, m.columns, m.columns, rows);
  };
  if (!ptx::encode_map(&of_weights, CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, weights, weight_rows, depth,
                       depth, Scaled::kHalf) ||
      !encode(&by_64, from, 64) || !encode(&by_16, from, 16) || !encode(&of_to, to, 8)) {
    return cudaErrorInvalidValue;
  }
  const int64_t blocks = std::min<int64_t>(most_tiles * problem.across, device.multiprocessors);
  return kernforge::launch_with_shared(device, stream, &scaled<T, kGated>, blocks, Scaled::kThreads,
                                       Scaled::kShared, of_weights, by_64, by_16, of_to, factors,
                                       tables.tiles_in_all, tables.tiles, problem);
}

template <class T>
cudaError_t launch_with_factors(const Experts& of, const sorting::Tables& tables, void* tokens,
                                void* inner, cudaStream_t stream) {
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  const int64_t assignments = of.tokens * of.top;
  const int64_t rows = rows_of(assignments, of.experts);
  const int64_t most_tiles = sorting::most_tiles(assignments, of.experts, kMostScaledTokens);
  const Matrix x{tokens, rows, of.width}, h{inner, rows, of.inner};
  const int width = static_cast<int>(of.width), half = static_cast<int>(of.inner);
  const bool early = begins_early(of);
  const Problem up{width, (half + 127) / 128, 2 * half, 128, half, early};
  const Problem down{half, (width + 255) / 256, width, 256, 128, early};
  const auto blocks = [](int n) { return (n + 127) / 128; };
  cudaError_t error = kernforge::launch(
      device, stream, &spread_in_order, of.tokens, 128, static_cast<const uint4*>(of.x),
      static_cast<uint4*>(tokens), tables.positions, static_cast<int>(of.top), width / 16);
  if (!error) {
    error = multiply_scaled<T, true>(device, of.w1, of.experts * 2 * of.inner, of.width,
                                     {of.w1_scale, blocks(2 * half), blocks(width)}, x, h, tables,
                                     most_tiles, up, stream);
  }
  if (error) return error;
  return multiply_scaled<T, false>(device, of.w2, of.experts * of.width, of.inner,
                                   {of.w2_scale, blocks(width), blocks(half)}, h, x, tables,
                                   most_tiles, down, stream);
}

}  // namespace moe::hopper
