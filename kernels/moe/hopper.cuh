// SPDX-License-Identifier: Apache-2.0
//
// Products of sorted tokens with the weights of their experts, by the tensor cores of compute
// capability 9.0a.
//
// The weights are the left side, the tokens the right one: wgmma has 64 rows on the left and any
// multiple of 8 on the right, and it is the number of tokens of an expert that is not known. A tile
// is 256 rows of a weight and 16 to 160 tokens, and each size has its code. With few tokens, where
// all time goes to reading weights, it is 128 rows and at most 32 tokens, and the ring is deeper.
//
// One block an SM, which stays, and takes its tiles from a table that the sort has written: a warp
// copies 64-column (128-byte) slices of a tile's weights and tokens into a ring in shared memory
// (TMA; rows of x, which lie anywhere, as gather_rows has it), one or two warp groups multiply
// them, each 128 rows of the weights. Of w1 these are 64 rows of the gate and the same 64 of up, so
// that both meet in one thread, which has SwiGLU in registers.
//
// As in linear-gelu two warp groups take turns at the end of a tile: one has its epilogue while the
// other multiplies.
//
// Programmatic dependent launch: the kernel of w2 begins while that of w1 still runs, as its blocks
// end, and asks for its first weights before it waits. Its table was whole before the kernel of w1
// let it begin; it is read past the L1 cache, which knows nothing of that.

#pragma once

#include "hopper.h"
#include "kernforge/pdl.cuh"
#include "products.cuh"
#include "tables.h"

namespace moe::hopper {

namespace ptx = kernforge::hopper;
using sorting::Tile;

constexpr int kOutBytes = 2 * 32 * 128;  // of a warp group: 32 tokens, twice

// kGroups: warp groups that multiply. kLate: slices by which gathered rows are told late.
template <int kTokens_, int kGroups_, int kStages_, int kLate_>
struct Shape {
  static constexpr int kTokens = kTokens_, kGroups = kGroups_, kStages = kStages_, kLate = kLate_;
  static constexpr int kHalf = 64 * kGroups, kThreads = 128 + 128 * kGroups;
  static constexpr int kLeftBytes = 2 * kHalf * 128, kStageBytes = kLeftBytes + kTokens * 128;
  static constexpr int kShared = kStages * (kStageBytes + 16) + kGroups * kOutBytes;
};
using Many = Shape<kMostTokens, 2, 4, 1>;
using Few = Shape<kMostFewTokens, 1, 10, 4>;

struct Problem {
  int depth;   // of both sides
  int across;  // tiles along the rows of a weight
  int rows;    // of the weight of one expert
  int step;    // rows from one tile to the next, in the weight and in the result
  int second;  // rows from the first half of a tile to its other half
  bool early;  // the next kernel may begin while this one runs
};

// A matrix [rows, columns] without gaps.
struct Matrix {
  const void* data;
  int64_t rows, columns;
};

template <class T>
__device__ __forceinline__ uint32_t packed(float a, float b) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(a, b);
    return reinterpret_cast<const uint32_t&>(both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const uint32_t&>(both);
  }
}

__device__ __forceinline__ void store_transposed(uint32_t to, uint32_t a, uint32_t b, uint32_t c,
                                                 uint32_t d) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, "
      "%3, %4};" ::"r"(to),
      "r"(a), "r"(b), "r"(c), "r"(d)
      : "memory");
}

// The i-th tile: an expert's tokens in bands, in a band one part of the weight after the other.
struct Work {
  int left, column, row, tokens, expert;
};

__device__ __forceinline__ Work work_at(int i, const Tile* tiles, const Problem& p) {
  const int4 any = __ldcg(reinterpret_cast<const int4*>(tiles + i / p.across));
  const int rest = i - any.y * p.across, width = any.w >> 16;
  const int part = rest / width;
  const int4 own = __ldcg(reinterpret_cast<const int4*>(tiles + any.y + rest % width));
  return {any.x * p.rows + part * p.step, part * p.step, own.z, own.w & 0xFFFF, any.x};
}

// Where gate and up go that are kept for a gradient.
template <bool kKeep>
struct Kept {};
template <>
struct Kept<true> {
  CUtensorMap gate, up;
};

template <class T, class S, bool kGated, bool kKeep = false>
struct Consumer {
  uint32_t ring, out, full, empty;
  int slices, stagger, consumer, warp, lane;
  const CUtensorMap* to;
  const Kept<kKeep>* kept = nullptr;
  int stage = 0, next = 0;
  uint32_t parity = 0;

  static constexpr int kTurn = 1, kOwn = 2;  // named barriers, the latter for each warp group

  __device__ __forceinline__ void release(int of) const {
    if (warp == 0 && lane == 0) ptx::mbarrier_arrive_at(empty + 8 * of, 0);
  }

  // 64 rows of the weight, kN tokens: a row of shared memory is a token.
  template <int kN>
  __device__ __forceinline__ void write(const CUtensorMap* map, const float (&v)[kN / 2],
                                        int column, const Work& work) {
#pragma unroll
    for (int chunk = 0; chunk < (kN + 31) / 32; ++chunk) {
      const uint32_t buffer = out + next * 4096;
      next ^= 1;
      if (warp == 0 && lane < 4) ptx::stores_have_read<1>();
      ptx::barrier_sync(kOwn + consumer, 128);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (chunk * 32 + half * 16 >= kN) break;
        const float* d = v + (chunk * 2 + half) * 8;
        const int token = half * 16 + lane / 16 * 8 + lane % 8;
        const uint32_t unit = (2 * warp + (lane / 8 & 1)) ^ (lane % 8);
        store_transposed(buffer + token * 128 + unit * 16, packed<T>(d[0], d[1]),
                         packed<T>(d[2], d[3]), packed<T>(d[4], d[5]), packed<T>(d[6], d[7]));
      }
      ptx::fence_shared_for_copies();
      ptx::barrier_sync(kOwn + consumer, 128);
      if (warp == 0 && lane < 4) {
        const int token = chunk * 32 + lane * 8;
        if (token < work.tokens) {
          ptx::store_box(map, column, work.row + token, buffer + lane * 1024);
        } else {
          asm volatile("cp.async.bulk.commit_group;" ::: "memory");  // so that all count alike
        }
      }
    }
  }

  // From the sums of a tile to memory.
  template <int kN>
  __device__ __forceinline__ void finish(float (&d)[2][kN / 2], const Work& work) {
    const int column = work.column + consumer * 64;
    if constexpr (kGated) {
      if constexpr (kKeep) {
        write<kN>(&kept->gate, d[0], column, work);
        write<kN>(&kept->up, d[1], column, work);
      }
#pragma unroll
      for (int i = 0; i < kN / 2; ++i) {
        d[0][i] = __fdividef(d[0][i], 1.f + __expf(-d[0][i])) * d[1][i];
      }
      write<kN>(to, d[0], column, work);
    } else {
      write<kN>(to, d[0], column, work);
      write<kN>(to, d[1], column + S::kHalf, work);
    }
  }

  template <int kN>
  __device__ __forceinline__ void tile(const Work& work) {
    float d[2][kN / 2] = {};  // else the sums of every size live through all tiles
    int unreleased = -1;
    for (int slice = 0; slice < slices; ++slice) {
      if (consumer == 1 && stagger != 0 && slice == slices - stagger) {
        ptx::products_wait<0>();
        if (unreleased >= 0) release(unreleased);
        unreleased = -1;
        ptx::barrier_sync(kTurn, 256);
      }
      ptx::mbarrier_wait(full + 8 * stage, parity);
      const uint32_t at = ring + stage * S::kStageBytes;
      const uint64_t left = ptx::descriptor(at + consumer * 64 * 128);
      const uint64_t right = ptx::descriptor(at + S::kLeftBytes);
      ptx::products_fence();
#pragma unroll
      for (int step = 0; step < 4; ++step) {
#pragma unroll
        for (int block = 0; block < 2; ++block) {
          ptx::Product<T, T, kN>::run(d[block], left + block * S::kHalf * 8 + step * 2,
                                      right + step * 2, slice | step);
        }
      }
      ptx::products_commit();
      if (consumer == 0 && stagger != 0 && slice == slices - 1) ptx::barrier_arrive(kTurn, 256);
      ptx::products_wait<1>();
      if (unreleased >= 0) release(unreleased);
      unreleased = stage;
      if (++stage == S::kStages) stage = 0, parity ^= 1;
    }
    ptx::products_wait<0>();
#pragma unroll
    for (int block = 0; block < 2; ++block) ptx::pin(d[block]);
    release(unreleased);
    finish<kN>(d, work);
  }
};

// The loads of a block whose tokens lie anywhere in x: the weights by TMA, the rows of x, which no
// tensor copy finds, 16 bytes a thread, swizzled as a tensor copy would have. Of a slice all is
// told when kLate more have been asked for.
template <class T, class S>
__device__ __forceinline__ void gather_rows(const CUtensorMap& weights, const T* x,
                                            const int* sources, const Tile* tiles,
                                            const Problem& problem, uint32_t ring, uint32_t full,
                                            uint32_t empty, int slices, int count) {
  constexpr int kUnits = S::kTokens / 16;
  const int part = threadIdx.x % 8, line = threadIdx.x / 8;
  const uint32_t own = line * 128 + ((part ^ (line & 7)) << 4);
  int stage = 0, late = 0;  // of so many stages before `stage` nothing was told
  uint32_t parity = 0;
  const auto tell = [&] {
    const int first = stage - late;
    ptx::fence_shared_for_copies();
    ptx::mbarrier_arrive_at(full + 8 * (first < 0 ? first + S::kStages : first), 0);
  };
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    const Work work = work_at(i, tiles, problem);
    const int units = (work.tokens + 15) / 16;
    int token[kUnits];
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) {
      token[unit] = 0;  // past the end the last one again
      if (unit < units) {
        token[unit] = __ldcg(sources + work.row + min(unit * 16 + line, work.tokens - 1));
      }
    }
    for (int slice = 0; slice < slices; ++slice) {
      ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1);
      const uint32_t left = ring + stage * S::kStageBytes;
      const int k = slice * 64;
      if (threadIdx.x == 0) {
        const uint32_t ready = full + 8 * stage;
        ptx::mbarrier_expect(ready, S::kLeftBytes);
        ptx::load_box(left, &weights, k, work.left, ready);
        ptx::load_box(left + S::kLeftBytes / 2, &weights, k, work.left + problem.second, ready);
      }
      const int column = k + part * 8, bytes = column < problem.depth ? 16 : 0;
      const T* from = x + (bytes ? column : 0);
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        if (unit >= units) break;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(left + S::kLeftBytes +
                                                                           own + unit * 2048),
                     "l"(from + int64_t{token[unit]} * problem.depth), "r"(bytes)
                     : "memory");
      }
      asm volatile("cp.async.commit_group;" ::: "memory");
      if (late == S::kLate) {
        asm volatile("cp.async.wait_group %0;" ::"n"(S::kLate) : "memory");
        tell();
      } else {
        ++late;
      }
      if (++stage == S::kStages) stage = 0, parity ^= 1;
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  for (; late > 0; --late) tell();
}

// The loads of a block whose tokens lie side by side, by one thread. Of the depth a slice has 128
// bytes of the weights and kBoxes times 128 of the tokens.
template <class S, int kBoxes = 1>
__device__ __forceinline__ void load_tiles(const CUtensorMap& weights, const CUtensorMap& by_64,
                                           const CUtensorMap& by_16, const Tile* tiles,
                                           const Problem& problem, uint32_t ring, uint32_t full,
                                           uint32_t empty, int slices, int count) {
  constexpr int kDeep = 64 * kBoxes, kMost = S::kTokens / kBoxes;
  int stage = 0;
  uint32_t parity = 0;
  const auto ask_weights = [&](const Work& work, int slice, int to) {
    const uint32_t ready = full + 8 * to, left = ring + to * S::kStageBytes;
    const int k = slice * kDeep;
    ptx::mbarrier_expect(ready, S::kLeftBytes + (work.tokens + 15) / 16 * 2048 * kBoxes);
    ptx::load_box(left, &weights, k, work.left, ready);
    ptx::load_box(left + S::kLeftBytes / 2, &weights, k, work.left + problem.second, ready);
  };
  int asked = 0;
  if (static_cast<int>(blockIdx.x) < count) {
    const Work work = work_at(blockIdx.x, tiles, problem);
    for (; asked < min(slices, S::kStages); ++asked) ask_weights(work, asked, asked);
  }
  kernforge::grid_dependency_synchronize();  // what the kernel before it wrote
  for (int i = blockIdx.x; i < count; i += gridDim.x) {
    const Work work = work_at(i, tiles, problem);
    const int units = (work.tokens + 15) / 16;
    for (int slice = 0; slice < slices; ++slice) {
      if (asked > 0) {
        --asked;
      } else {
        ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1);
        ask_weights(work, slice, stage);
      }
      const uint32_t ready = full + 8 * stage;
      const uint32_t right = ring + stage * S::kStageBytes + S::kLeftBytes;
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const uint32_t first = right + box * kMost * 128;
        const int k = slice * kDeep + box * 64;
        int unit = 0;
        if constexpr (kMost >= 64) {
          for (; unit + 4 <= units; unit += 4) {
            ptx::load_box(first + unit * 2048, &by_64, k, work.row + unit * 16, ready);
          }
        }
        for (; unit < units; ++unit) {
          ptx::load_box(first + unit * 2048, &by_16, k, work.row + unit * 16, ready);
        }
      }
      if (++stage == S::kStages) stage = 0, parity ^= 1;
    }
  }
}

__device__ __forceinline__ uint32_t dynamic_shared_memory() {
  extern __shared__ __align__(1024) char memory[];  // as the swizzle of 128 bytes wants it
  return ptx::shared_address(memory);
}

// kGather: of the first product, whose tokens are rows of x; else they lie side by side.
template <class T, class S, bool kGated, bool kGather, bool kKeep>
static __global__ void __launch_bounds__(S::kThreads, 1)
    grouped(const __grid_constant__ CUtensorMap weights, const __grid_constant__ CUtensorMap by_64,
            const __grid_constant__ CUtensorMap by_16, const __grid_constant__ CUtensorMap to,
            const __grid_constant__ Kept<kKeep> kept, const T* x, const int* sources,
            const int* tiles_in_all, const Tile* tiles, const Problem problem) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const uint32_t ring = dynamic_shared_memory();
  const uint32_t out = ring + S::kStages * S::kStageBytes;
  const uint32_t full = out + S::kGroups * kOutBytes, empty = full + 8 * S::kStages;
  const int group = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    ptx::prefetch_map(&weights);
    ptx::prefetch_map(&by_64);
    ptx::prefetch_map(&by_16);
    ptx::prefetch_map(&to);
    for (int i = 0; i < S::kStages; ++i) {
      ptx::mbarrier_init(full + 8 * i, kGather ? 1 + 128 : 1);
      ptx::mbarrier_init(empty + 8 * i, S::kGroups);
    }
    ptx::mbarrier_init_fence();
  }
  __syncthreads();
  if constexpr (kGated) kernforge::grid_dependency_synchronize();  // what the sort wrote
  if (problem.early) cudaTriggerProgrammaticLaunchCompletion();

  const int slices = (problem.depth + 63) / 64;
  const int count = __ldcg(tiles_in_all) * problem.across;
  if (group == 0) {
    if constexpr (S::kGroups == 2) ptx::fewer_registers<40>();
    if constexpr (kGather) {
      gather_rows<T, S>(weights, x, sources, tiles, problem, ring, full, empty, slices, count);
    } else if (threadIdx.x == 0) {
      load_tiles<S>(weights, by_64, by_16, tiles, problem, ring, full, empty, slices, count);
    }
  } else {
    if constexpr (S::kGroups == 2) ptx::more_registers<232>();
    const int consumer = group - 1;
    // Of few slices the first warp group could be a whole tile ahead. Rows that are gathered are
    // told a slice later, for which a stage of the ring has to be free.
    const int stagger =
        S::kGroups == 2 && slices > 2 * S::kStages ? S::kStages - kGather * S::kLate : 0;
    Consumer<T, S, kGated, kKeep> own{ring,
                                      out + consumer * kOutBytes,
                                      full,
                                      empty,
                                      slices,
                                      stagger,
                                      consumer,
                                      static_cast<int>(threadIdx.x % 128 / 32),
                                      static_cast<int>(threadIdx.x % 32),
                                      &to,
                                      &kept};
    int i = blockIdx.x;
    Work work{};
    if (i < count) work = work_at(i, tiles, problem);
    while (i < count) {
      i += gridDim.x;
      Work next{};
      if (i < count) next = work_at(i, tiles, problem);
      if constexpr (S::kTokens == 32) {
        if (work.tokens > 16) {
          own.template tile<32>(work);
        } else {
          own.template tile<16>(work);
        }
      } else {
        switch ((work.tokens + 15) / 16) {
          case 1:
            own.template tile<16>(work);
            break;
          case 2:
            own.template tile<32>(work);
            break;
          case 3:
          case 4:
            own.template tile<64>(work);
            break;
          case 5:
            own.template tile<80>(work);
            break;
          case 6:
            own.template tile<96>(work);
            break;
          case 7:
            own.template tile<112>(work);
            break;
          case 8:
            own.template tile<128>(work);
            break;
          case 9:
            own.template tile<144>(work);
            break;
          default:
            own.template tile<160>(work);
        }
      }
      work = next;
    }
    // Shared memory stays until the copies have read it.
    if (own.warp == 0 && own.lane < 4) ptx::stores_have_read<0>();
  }
#endif
}

}  // namespace moe::hopper
