// SPDX-License-Identifier: Apache-2.0
//
// y = gelu(x w^T + b) with the tensor cores of compute capability 9.0a.
//
// One block an SM, which stays: a warp copies 64-column (128-byte) slices of a tile's x and w into
// a ring in shared memory (TMA), two warp groups multiply them (wgmma), each half of the tile's
// rows. Blocks of a cluster share what they have in common: who has the same rows of x or of w
// loads a part of them and sends it to all.
//
// GELU is hidden behind the products. At the end of a tile the second warp group waits while the
// first multiplies the last `stagger` slices alone; then the first has its epilogue while the
// second multiplies, and multiplies the next tile's first slices while the second has its epilogue.
// The tensor cores see no gap as long as an epilogue is shorter than `stagger` slices of one warp
// group.

#pragma once

#include "gelu.cuh"
#include "kernforge/hopper.cuh"

namespace linear_gelu::hopper {

namespace ptx = kernforge::hopper;

// A tile of kRows x kColumns of the result, kStages slices in flight, clusters of
// kClusterRows x kClusterColumns tiles.
template <class T_, int kRows_, int kColumns_, int kStages_, int kClusterRows_,
          int kClusterColumns_>
struct Shape {
  using T = T_;
  static constexpr int kRows = kRows_, kColumns = kColumns_, kStages = kStages_;
  static constexpr int kClusterRows = kClusterRows_, kClusterColumns = kClusterColumns_;
  static constexpr int kCluster = kClusterRows * kClusterColumns;
  static constexpr int kDepth = 128 / sizeof(T);   // of a slice
  static constexpr int kBlocksOf64 = kRows / 128;  // of rows, for each of two warp groups
  static constexpr int kLeftBytes = kRows * 128, kStageBytes = kLeftBytes + kColumns * 128;
  static constexpr int kOutBytes = 2 * 16 * 128;   // for each of 8 warps, 16 rows twice
  static constexpr int kBiasBytes = kColumns * 4;  // for each warp group
  static constexpr int kShared =
      kStages * kStageBytes + 8 * kOutBytes + 2 * kBiasBytes + 2 * kStages * 8;
  // Of the boxes that one block loads.
  static constexpr int kLeftBox = kRows / kClusterColumns, kRightBox = kColumns / kClusterRows;
};

struct Problem {
  int rows, columns, depth;  // of x, of the result, of both
  int band;                  // cluster tiles along one side that are taken before the next
  bool bands_of_rows;        // that side is the rows
  int stagger;               // 0 to kStages
  int left_rows;             // of the box of x that one block loads
};

// The order of the tiles: bands of `band` cluster tiles, so that what runs at one time shares rows
// and columns in the L2 cache.
struct Tiles {
  int of_rows, of_columns, band;
  bool bands_of_rows;

  __device__ __forceinline__ int count() const { return of_rows * of_columns; }
  __device__ __forceinline__ int2 at(int i) const {
    const int along = bands_of_rows ? of_rows : of_columns;
    const int across = bands_of_rows ? of_columns : of_rows;
    const int before = i / (band * across) * band;
    const int width = min(band, along - before);
    const int rest = i - before * across;
    const int a = before + rest % width, b = rest / width;
    return bands_of_rows ? make_int2(a, b) : make_int2(b, a);
  }
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
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t both) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(both));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(both));
  }
}

// Half types are kept as z / 2 from the sum on, which saves GELU a product.
template <class T>
constexpr float kScale = sizeof(T) == 2 ? 0.5f : 1.f;

// Two columns of the bias, scaled; nothing past the end, and without a bias zeros.
template <class T>
struct BiasPair {
  std::conditional_t<sizeof(T) == 2, uint32_t, float2> packed{};

  __device__ __forceinline__ void load(const T* bias, int column, int columns) {
    if (bias == nullptr || column >= columns) return;
    packed = __ldg(reinterpret_cast<const decltype(packed)*>(bias + column));
  }
  __device__ __forceinline__ float2 scaled() const {
    if constexpr (sizeof(T) == 2) {
      const float2 pair = unpacked<T>(packed);
      return {kScale<T> * pair.x, kScale<T> * pair.y};
    } else {
      return packed;
    }
  }
};

// 16 rows of one warp, 128 bytes of each, from registers to the result: by shared memory and TMA.
template <class T>
struct Writer {
  uint32_t buffers;  // two of 16 rows of 128 bytes
  int lane, next = 0;

  // The other buffer, once it has been read.
  __device__ __forceinline__ uint32_t buffer() {
    if (lane == 0) ptx::stores_have_read<1>();
    __syncwarp();
    next ^= 1;
    return buffers + next * 2048;
  }
  __device__ __forceinline__ void send(const CUtensorMap* map, int column, int row, uint32_t from) {
    ptx::fence_shared_for_copies();
    __syncwarp();
    if (lane == 0) ptx::store_box(map, column, row, from);
  }

  // values[8 blocks of 8 columns or 4][4], as wgmma leaves them.
  __device__ __forceinline__ void write(const float* values, const CUtensorMap* map, int column,
                                        int row) {
    const uint32_t to = buffer();
    if constexpr (sizeof(T) == 2) {
      const int r = lane % 16;
      const uint32_t line = to + r * 128;
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* v = values + 4 * j;
        const uint32_t unit = (j + lane / 16) ^ (r & 7);
        ptx::store_matrices(line + unit * 16, packed<T>(v[0], v[1]), packed<T>(v[2], v[3]),
                            packed<T>(v[4], v[5]), packed<T>(v[6], v[7]));
      }
    } else {
      const int r = lane / 4;
      const uint32_t line = to + r * 128 + (lane & 1) * 8;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t unit = (2 * j + (lane % 4) / 2) ^ r;
        ptx::store_pair(line + unit * 16, values[4 * j], values[4 * j + 1]);
        ptx::store_pair(line + 1024 + unit * 16, values[4 * j + 2], values[4 * j + 3]);
      }
    }
    send(map, column, row, to);
  }
};

template <class S, class Activation, bool kKeep>
static __global__ void __launch_bounds__(384, 1)
    linear(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
           const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap z,
           const typename S::T* __restrict__ bias, const Problem problem) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using T = typename S::T;
  extern __shared__ __align__(1024) char memory[];  // as the swizzle of 128 bytes wants it
  const uint32_t ring = ptx::shared_address(memory);
  const uint32_t out = ring + S::kStages * S::kStageBytes;
  const uint32_t biases = out + 8 * S::kOutBytes;
  const uint32_t full = biases + 2 * S::kBiasBytes, empty = full + 8 * S::kStages;

  const int group = threadIdx.x / 128;
  const uint32_t rank = S::kCluster == 1 ? 0 : ptx::rank_in_cluster();
  const int rank_row = rank % S::kClusterRows, rank_column = rank / S::kClusterRows;

  if (threadIdx.x == 0) {
    ptx::prefetch_map(&x);
    ptx::prefetch_map(&w);
    ptx::prefetch_map(&y);
    for (int i = 0; i < S::kStages; ++i) {
      ptx::mbarrier_init(full + 8 * i, 1);
      // Both warp groups of every block that this one sends to.
      ptx::mbarrier_init(empty + 8 * i, 2 * (S::kClusterRows + S::kClusterColumns - 1));
    }
    ptx::mbarrier_init_fence();
  }
  if constexpr (S::kCluster > 1) {
    ptx::cluster_sync();
  } else {
    __syncthreads();
  }

  const int slices = (problem.depth + S::kDepth - 1) / S::kDepth;
  const auto parts = [](int all, int part) { return (all + part - 1) / part; };
  const Tiles tiles{parts(problem.rows, S::kRows * S::kClusterRows),
                    parts(problem.columns, S::kColumns * S::kClusterColumns), problem.band,
                    problem.bands_of_rows};
  const int count = tiles.count(), clusters = gridDim.x / S::kCluster;
  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage == S::kStages) stage = 0, parity ^= 1;
  };

  if (group == 0) {
    ptx::fewer_registers<40>();
    if (threadIdx.x == 0) {
      const uint16_t same_rows = [&] {
        uint32_t mask = 0;
        for (int i = 0; i < S::kClusterColumns; ++i) mask |= 1u << (rank_row + i * S::kClusterRows);
        return mask;
      }();
      const uint16_t same_columns = ((1u << S::kClusterRows) - 1) << rank_column * S::kClusterRows;
      const uint32_t stage_bytes = (problem.left_rows * S::kClusterColumns + S::kColumns) * 128;
      for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
        const int2 tile = tiles.at(i);
        const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows;
        const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
        for (int slice = 0; slice < slices; ++slice) {
          ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1);
          const uint32_t ready = full + 8 * stage;
          const uint32_t left = ring + stage * S::kStageBytes, right = left + S::kLeftBytes;
          ptx::mbarrier_expect(ready, stage_bytes);
          const int k = slice * S::kDepth;
          if constexpr (S::kClusterColumns == 1) {
            ptx::load_box(left, &x, k, row, ready);
          } else {
            const int part = rank_column * S::kLeftBox;
            ptx::load_box_for(same_rows, left + part * 128, &x, k, row + part, ready);
          }
          if constexpr (S::kClusterRows == 1) {
            ptx::load_box(right, &w, k, column, ready);
          } else {
            const int part = rank_row * S::kRightBox;
            ptx::load_box_for(same_columns, right + part * 128, &w, k, column + part, ready);
          }
          advance();
        }
      }
    }
  } else {
    ptx::more_registers<232>();
    constexpr int kBlocks = S::kBlocksOf64, kN = S::kColumns;
    constexpr int kSteps = 4;  // of 32 bytes in a slice
    const int consumer = group - 1, thread = threadIdx.x % 128, warp = thread / 32;
    const int lane = threadIdx.x % 32;
    // Of few slices the first warp group could be a whole tile ahead.
    const int stagger = slices > 2 * S::kStages ? problem.stagger : 0;
    constexpr int kTurn = 1, kBiasReady = 2;  // named barriers, the latter for each warp group
    const bool tells = thread < S::kCluster && (thread % S::kClusterRows == rank_row ||
                                                thread / S::kClusterRows == rank_column);
    const auto release = [&](int of) {
      if (tells) ptx::mbarrier_arrive_at(empty + 8 * of, thread);
    };
    Writer<T> writer{out + (consumer * 4 + warp) * S::kOutBytes, lane};
    const uint32_t own_bias = biases + consumer * S::kBiasBytes;
    float d[kBlocks][kN / 2];

    for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
      const int2 tile = tiles.at(i);
      const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows;
      const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
      BiasPair<T> pair;
      if (thread < kN / 2) pair.load(bias, column + 2 * thread, problem.columns);
      int unreleased = -1;
      for (int slice = 0; slice < slices; ++slice) {
        if (consumer == 1 && stagger != 0 && slice == slices - stagger) {
          ptx::products_wait<0>();
          if (unreleased >= 0) release(unreleased);
          unreleased = -1;
          ptx::barrier_sync(kTurn, 256);
        }
        ptx::mbarrier_wait(full + 8 * stage, parity);
        const uint32_t left = ring + stage * S::kStageBytes + consumer * kBlocks * 64 * 128;
        const uint64_t of_left = ptx::descriptor(left);
        const uint64_t of_right = ptx::descriptor(ring + stage * S::kStageBytes + S::kLeftBytes);
        ptx::products_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
            ptx::Product<T, T, kN>::run(d[block], of_left + block * 512 + step * 2,
                                        of_right + step * 2, slice | step);
          }
        }
        ptx::products_commit();
        if (consumer == 0 && stagger != 0 && slice == slices - 1) ptx::barrier_arrive(kTurn, 256);
        ptx::products_wait<1>();
        if (unreleased >= 0) release(unreleased);
        unreleased = stage;
        advance();
      }
      ptx::products_wait<0>();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) ptx::pin(d[block]);
      release(unreleased);
      // All four warps have ended the tile before, or these products would not have ended.
      if (thread < kN / 2) {
        const float2 both = pair.scaled();
        ptx::store_pair(own_bias + thread * 8, both.x, both.y);
      }
      ptx::barrier_sync(kBiasReady + consumer, 128);

      constexpr int kChunk = 128 / sizeof(T), kValues = kChunk / 2;  // columns, values of a thread
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int first = row + (consumer * kBlocks + block) * 64 + warp * 16;
#pragma unroll
        for (int chunk = 0; chunk < kN / kChunk; ++chunk) {
          float* v = d[block] + chunk * kValues;
          const int at = column + chunk * kChunk;
#pragma unroll
          for (int j = 0; j < kValues / 4; ++j) {
            const float2 b =
                ptx::load_pair(own_bias + (chunk * kChunk + 8 * j + 2 * (lane % 4)) * 4);
            v[4 * j] = fmaf(v[4 * j], kScale<T>, b.x);
            v[4 * j + 1] = fmaf(v[4 * j + 1], kScale<T>, b.y);
            v[4 * j + 2] = fmaf(v[4 * j + 2], kScale<T>, b.x);
            v[4 * j + 3] = fmaf(v[4 * j + 3], kScale<T>, b.y);
          }
          if constexpr (kKeep) {
            float whole[kValues];
#pragma unroll
            for (int j = 0; j < kValues; ++j) whole[j] = v[j] * (1 / kScale<T>);
            writer.write(whole, &z, at, first);
          }
#pragma unroll
          for (int j = 0; j < kValues; ++j) v[j] = Activation::of_scaled(v[j]);
          writer.write(v, &y, at, first);
        }
      }
    }
    // Shared memory stays until the copies have read it.
    if (lane == 0) ptx::stores_have_read<0>();
  }
  if constexpr (S::kCluster > 1) {
    __syncwarp();
    ptx::cluster_sync();  // until no block sends here any more
  }
#endif
}

}  // namespace linear_gelu::hopper
