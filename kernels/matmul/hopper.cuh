// SPDX-License-Identifier: Apache-2.0
//
// c = a b with the tensor cores of compute capability 9.0a, each operand with either of its
// dimensions side by side.
//
// One block an SM, which stays: a warp copies slices of 128 bytes of the depth of a tile's rows and
// columns into a ring in shared memory (TMA), two warp groups multiply them (wgmma), each half of
// the tile's rows. Blocks of a cluster share what they have in common: who has the same rows of a
// or columns of b loads a part of them and sends it to all.
//
// What follows the products is hidden behind them: at the end of a tile the second warp group waits
// while the first multiplies the last `stagger` slices alone; then the first writes its results
// while the second multiplies, and multiplies the next tile's first slices while the second writes.

#pragma once

#include <type_traits>

#include "kernforge/hopper.cuh"
#include "matmul.h"

namespace matmul::hopper {

namespace ptx = kernforge::hopper;
using ptx::Major;

// What is multiplied, and how its operands lie.
template <class Left_, class Right_, class Out_, Major kLeft_, Major kRight_>
struct Kind {
  using Left = Left_;
  using Right = Right_;
  using Out = Out_;
  static constexpr Major kLeft = kLeft_, kRight = kRight_;
};

// A tile of kRows x kColumns of the result, kStages slices in flight, clusters of
// kClusterRows x kClusterColumns tiles.
template <int kRows_, int kColumns_, int kStages_, int kClusterRows_, int kClusterColumns_>
struct Shape {
  static constexpr int kRows = kRows_, kColumns = kColumns_, kStages = kStages_;
  static constexpr int kClusterRows = kClusterRows_, kClusterColumns = kClusterColumns_;
  static constexpr int kCluster = kClusterRows * kClusterColumns;
  static constexpr int kBlocksOf64 = kRows / 128;  // of rows, for each of two warp groups
  static constexpr int kLeftBytes = kRows * 128, kStageBytes = kLeftBytes + kColumns * 128;
  static constexpr int kOutBytes = 2 * 16 * 128;  // for each of 8 warps, 16 rows twice
  static constexpr int kShared = kStages * kStageBytes + 8 * kOutBytes + 2 * kStages * 8;
  // Rows and columns that one block loads.
  static constexpr int kLeftPart = kRows / kClusterColumns, kRightPart = kColumns / kClusterRows;
  // Accumulators take most registers; what the ones of a tile of 256 x 192 leave is little.
  static constexpr bool kMany = kRows * kColumns > 128 * 256;
};

struct Problem {
  int rows, columns, depth, matrices;
  bool one_left, one_right;  // for all matrices
  int band;                  // cluster tiles along one side that are taken before the next
  bool bands_of_rows;        // that side is the rows
  int stagger;               // 0 to kStages
};

// The order of the tiles: bands of `band` cluster tiles, so that what runs at one time shares rows
// and columns in the L2 cache.
struct Tiles {
  int of_rows, of_columns, matrices, band;
  bool bands_of_rows;

  __device__ __forceinline__ int count() const { return of_rows * of_columns * matrices; }
  __device__ __forceinline__ int3 at(int index) const {
    const int of_one = of_rows * of_columns;
    const int matrix = matrices == 1 ? 0 : index / of_one;
    const int i = index - matrix * of_one;
    const int along = bands_of_rows ? of_rows : of_columns;
    const int across = bands_of_rows ? of_columns : of_rows;
    const int before = i / (band * across) * band;
    const int width = min(band, along - before);
    const int rest = i - before * across;
    const int a = before + rest % width, b = rest / width;
    return bands_of_rows ? make_int3(a, b, matrix) : make_int3(b, a, matrix);
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
// Two numbers side by side.
template <class T>
__device__ __forceinline__ float2 pair_at(const void* data, int64_t at) {
  const T* from = static_cast<const T*>(data) + at;
  if constexpr (std::is_same_v<T, float>) {
    return __ldg(reinterpret_cast<const float2*>(from));
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(__ldg(reinterpret_cast<const __half2*>(from)));
  } else {
    return __bfloat1622float2(__ldg(reinterpret_cast<const __nv_bfloat162*>(from)));
  }
}

// What follows the products.
enum class Epilogue {
  kNone,
  kScaled,  // scales, then the bias
  kFull,    // the bias, the activation, the residual
};

// silu, and gelu in both forms, are z times the sigmoid of z P(z^2): one piece of code, of which
// the numbers differ. -log2(e) is in them, and z^2 is at most `most`. By the normal distribution P
// is fitted to its log-odds on [-5, 5], 3.7e-4 of the value.
struct Curve {
  float at[6];
  float most;
};

inline Curve curve_of(Activation activation) {
  constexpr float kUnit = -1.4426950408889634f, kTwice = 1.5957691216057308f;
  constexpr float kAny = 3e38f;
  if (activation == Activation::kSilu) return {{kUnit, 0, 0, 0, 0, 0}, kAny};
  if (activation == Activation::kGeluErf) {
    return {
        {1.5944643103717435f * kUnit, 7.420286790910632e-2f * kUnit, -6.112007068955e-4f * kUnit,
         -2.5327540675e-5f * kUnit, 1.3516917800e-6f * kUnit, -1.913555076e-8f * kUnit},
        25};
  }
  return {{kTwice * kUnit, 0.044715f * kTwice * kUnit, 0, 0, 0, 0}, kAny};
}

__device__ __forceinline__ float activated(Activation activation, const Curve& curve, float z) {
  if (activation == Activation::kNone) return z;
  if (activation == Activation::kRelu) return z < 0 ? 0.f : z;  // NaN stays
  const float square = fminf(z * z, curve.most);
  float odds = fmaf(curve.at[5], square, curve.at[4]);
#pragma unroll
  for (int i = 3; i >= 0; --i) odds = fmaf(odds, square, curve.at[i]);
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(z * odds));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.f + e));
  return z * r;
}

// What is added and applied to sums, four of a thread: columns c and c + 1 of rows r and r + 8.
template <Epilogue kEpilogue, class T>
__device__ __forceinline__ void finish(float* v, const Extras& extras, const Curve& curve,
                                       const Problem& problem, int row, int column, int matrix) {
  if (column >= problem.columns) return;  // columns are even
  const float2 bias = extras.bias == nullptr ? float2{0, 0} : pair_at<T>(extras.bias, column);
  float2 scale{1, 1};
  if constexpr (kEpilogue == Epilogue::kScaled) {
    scale.x = __ldg(extras.scale_b + column * extras.scale_b_stride);
    scale.y = __ldg(extras.scale_b + (column + 1) * extras.scale_b_stride);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = row + 8 * half;
    if (r >= problem.rows) continue;
    float &a = v[2 * half], &b = v[2 * half + 1];
    if constexpr (kEpilogue == Epilogue::kScaled) {
      const float of_row = __ldg(extras.scale_a + r * extras.scale_a_stride);
      a = fmaf(a, of_row * scale.x, bias.x), b = fmaf(b, of_row * scale.y, bias.y);
    } else {
      a = activated(extras.activation, curve, a + bias.x);
      b = activated(extras.activation, curve, b + bias.y);
      if (extras.residual.data != nullptr) {
        const float2 added =
            pair_at<T>(extras.residual.data, matrix * extras.residual.matrix_stride +
                                                 r * extras.residual.row_stride + column);
        a += added.x, b += added.y;
      }
    }
  }
}

// 16 rows of one warp, 128 bytes of each, from registers to the result: by shared memory and TMA.
template <class T>
struct Writer {
  uint32_t buffers;  // two of 16 rows of 128 bytes
  int lane, next = 0;

  // values[8 blocks of 8 columns or 4][4], as wgmma leaves them.
  __device__ __forceinline__ void write(const float* values, const CUtensorMap* map, int column,
                                        int row, int matrix) {
    if (lane == 0) ptx::stores_have_read<1>();  // the other buffer
    __syncwarp();
    next ^= 1;
    const uint32_t to = buffers + next * 2048;
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
    ptx::fence_shared_for_copies();
    __syncwarp();
    if (lane == 0) ptx::store_box(map, column, row, matrix, to);
  }
};

template <class K, class S, Epilogue kEpilogue>
static __global__ void __launch_bounds__(384, 1)
    multiply(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
             const __grid_constant__ CUtensorMap c, const __grid_constant__ Extras extras,
             const __grid_constant__ Curve curve, const __grid_constant__ Problem problem) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr int kDepth = 128 / sizeof(typename K::Left);  // of a slice
  static_assert(K::kLeft == Major::kDepth || S::kLeftPart % 64 == 0);
  static_assert(K::kRight == Major::kDepth || S::kRightPart % 64 == 0);
  extern __shared__ __align__(1024) char memory[];  // as the swizzle of 128 bytes wants it
  const uint32_t ring = ptx::shared_address(memory);
  const uint32_t out = ring + S::kStages * S::kStageBytes;
  const uint32_t full = out + 8 * S::kOutBytes, empty = full + 8 * S::kStages;

  const int group = threadIdx.x / 128;
  const uint32_t rank = S::kCluster == 1 ? 0 : ptx::rank_in_cluster();
  const int rank_row = rank % S::kClusterRows, rank_column = rank / S::kClusterRows;

  if (threadIdx.x == 0) {
    ptx::prefetch_map(&a);
    ptx::prefetch_map(&b);
    ptx::prefetch_map(&c);
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

  const int slices = (problem.depth + kDepth - 1) / kDepth;
  const auto parts = [](int all, int part) { return (all + part - 1) / part; };
  const Tiles tiles{parts(problem.rows, S::kRows * S::kClusterRows),
                    parts(problem.columns, S::kColumns * S::kClusterColumns), problem.matrices,
                    problem.band, problem.bands_of_rows};
  const int count = tiles.count(), clusters = gridDim.x / S::kCluster;
  int stage = 0;
  uint32_t parity = 0;
  const auto advance = [&] {
    if (++stage == S::kStages) stage = 0, parity ^= 1;
  };

  if (group == 0) {
    ptx::fewer_registers<S::kMany ? 24 : 40>();
    if (threadIdx.x == 0) {
      const uint16_t same_rows = [&] {
        uint32_t mask = 0;
        for (int i = 0; i < S::kClusterColumns; ++i) mask |= 1u << (rank_row + i * S::kClusterRows);
        return mask;
      }();
      const uint16_t same_columns = ((1u << S::kClusterRows) - 1) << rank_column * S::kClusterRows;
      const auto load = [&](auto major, auto part, bool shared, uint16_t blocks, uint32_t to,
                            const CUtensorMap* map, int line, int k, int matrix, uint32_t ready) {
        if constexpr (decltype(major)::value == Major::kDepth) {
          shared ? ptx::load_box_for(blocks, to, map, k, line, matrix, ready)
                 : ptx::load_box(to, map, k, line, matrix, ready);
        } else {
#pragma unroll
          for (int i = 0; i < decltype(part)::value / 64; ++i) {
            const uint32_t at = to + i * kDepth * 128;
            shared ? ptx::load_box_for(blocks, at, map, line + i * 64, k, matrix, ready)
                   : ptx::load_box(at, map, line + i * 64, k, matrix, ready);
          }
        }
      };
      for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
        const int3 tile = tiles.at(i);
        const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows;
        const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
        const int left_part = rank_column * S::kLeftPart, right_part = rank_row * S::kRightPart;
        for (int slice = 0; slice < slices; ++slice) {
          ptx::mbarrier_wait(empty + 8 * stage, parity ^ 1);
          const uint32_t ready = full + 8 * stage;
          const uint32_t left = ring + stage * S::kStageBytes, right = left + S::kLeftBytes;
          ptx::mbarrier_expect(ready, S::kStageBytes);
          const int k = slice * kDepth;
          load(std::integral_constant<Major, K::kLeft>{},
               std::integral_constant<int, S::kLeftPart>{}, S::kClusterColumns > 1, same_rows,
               left + left_part * 128, &a, row + left_part, k, problem.one_left ? 0 : tile.z,
               ready);
          load(std::integral_constant<Major, K::kRight>{},
               std::integral_constant<int, S::kRightPart>{}, S::kClusterRows > 1, same_columns,
               right + right_part * 128, &b, column + right_part, k, problem.one_right ? 0 : tile.z,
               ready);
          advance();
        }
      }
    }
  } else {
    ptx::more_registers<S::kMany ? 240 : 232>();
    constexpr int kBlocks = S::kBlocksOf64, kN = S::kColumns;
    constexpr int kSteps = 4;  // of 32 bytes in a slice
    constexpr int kLeftStep = K::kLeft == Major::kDepth ? 2 : 128;
    constexpr int kRightStep = K::kRight == Major::kDepth ? 2 : 128;
    const auto described = [](auto major, uint32_t address) {
      if constexpr (decltype(major)::value == Major::kDepth) return ptx::descriptor(address);
      return ptx::descriptor_by_rows<64 * 128>(address);
    };
    const int consumer = group - 1, thread = threadIdx.x % 128, warp = thread / 32;
    const int lane = threadIdx.x % 32;
    // Of few slices the first warp group could be a whole tile ahead.
    const int stagger = slices > 2 * S::kStages ? problem.stagger : 0;
    constexpr int kTurn = 1;  // a named barrier
    const bool tells = thread < S::kCluster && (thread % S::kClusterRows == rank_row ||
                                                thread / S::kClusterRows == rank_column);
    const auto release = [&](int of) {
      if (tells) ptx::mbarrier_arrive_at(empty + 8 * of, thread);
    };
    Writer<typename K::Out> writer{out + (consumer * 4 + warp) * S::kOutBytes, lane};
    float d[kBlocks][kN / 2];

    for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
      int unreleased = -1;
      for (int slice = 0; slice < slices; ++slice) {
        if (consumer == 1 && stagger != 0 && slice == slices - stagger) {
          ptx::products_wait<0>();
          if (unreleased >= 0) release(unreleased);
          unreleased = -1;
          ptx::barrier_sync(kTurn, 256);
        }
        ptx::mbarrier_wait(full + 8 * stage, parity);
        const uint64_t of_left =
            described(std::integral_constant<Major, K::kLeft>{},
                      ring + stage * S::kStageBytes + consumer * kBlocks * 64 * 128);
        const uint64_t of_right = described(std::integral_constant<Major, K::kRight>{},
                                            ring + stage * S::kStageBytes + S::kLeftBytes);
        ptx::products_fence();
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) {
            ptx::Product<typename K::Left, typename K::Right, kN, K::kLeft, K::kRight>::run(
                d[block], of_left + block * 512 + step * kLeftStep, of_right + step * kRightStep,
                slice | step);
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

      const int3 tile = tiles.at(i);
      const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows;
      const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
      // Columns, and values of a thread, that are written at a time.
      constexpr int kChunk = 128 / sizeof(typename K::Out), kValues = kChunk / 2;
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const int first = row + (consumer * kBlocks + block) * 64 + warp * 16;
#pragma unroll
        for (int chunk = 0; chunk < kN / kChunk; ++chunk) {
          float* v = d[block] + chunk * kValues;
          const int at = column + chunk * kChunk;
          if constexpr (kEpilogue != Epilogue::kNone) {
#pragma unroll
            for (int j = 0; j < kValues / 4; ++j) {
              finish<kEpilogue, typename K::Out>(v + 4 * j, extras, curve, problem,
                                                 first + lane / 4, at + 8 * j + 2 * (lane % 4),
                                                 tile.z);
            }
          }
          writer.write(v, &c, at, first, tile.z);
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

}  // namespace matmul::hopper
