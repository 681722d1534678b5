// SPDX-License-Identifier: Apache-2.0
//
// c = activation(scales * (a b) + bias) + residual with the tensor cores of compute capability
// 9.0a, each operand with either of its dimensions side by side. What follows the product is chosen
// when a kernel is compiled (`Epilogue`); the activation is the caller's.
//
// One block an SM, which stays: a warp copies slices of 128 bytes of the depth of a tile's rows and
// columns into a ring in shared memory (TMA), two warp groups multiply them (wgmma), each half of
// the tile's rows. Blocks of a cluster share what they have in common: who has the same rows of a
// or columns of b loads a part of them and sends it to all.
//
// What follows the products is hidden behind them: at the end of a tile the second warp group waits
// while the first multiplies the last `stagger` slices alone; then the first has its epilogue while
// the second multiplies, and multiplies the next tile's first slices while the second has its
// epilogue. The tensor cores see no gap as long as an epilogue is shorter than `stagger` slices of
// one warp group. Bias and scales of columns come from shared memory, where a warp group puts them
// once a tile; rows of the residual come by TMA into the buffers that the results leave from.
//
//   using K = Kind<__half, __half, __half, Major::kDepth, Major::kDepth>;
//   launch<K, Shape<128, 256, 4, 2, 1>, ProductAlone>(given, {}, stream);

#pragma once

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "kernforge/hopper.cuh"
#include "kernforge/hopper_waves.h"

namespace kernforge::hopper {

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
  static constexpr int kOutBytes = 2 * 16 * 128;     // for each of 8 warps, 16 rows twice
  static constexpr int kColumnBytes = kColumns * 4;  // for each warp group
  static constexpr int kShared =
      kStages * kStageBytes + 8 * kOutBytes + 2 * kColumnBytes + (2 * kStages + 16) * 8;
  // Rows and columns that one block loads.
  static constexpr int kLeftPart = kRows / kClusterColumns, kRightPart = kColumns / kClusterRows;
};

// What follows the products beside the activation. The second matrix of the result's shape is
// written or read: the values before the activation, or the residual.
enum class Second { kNone, kKept, kResidual };
template <class Activation_, bool kScaled_, Second kSecond_>
struct Epilogue {
  using Activation = Activation_;
  static constexpr bool kAny = true, kScaled = kScaled_;
  static constexpr Second kSecond = kSecond_;
};

// An activation multiplies sums and bias by `scale()` before it is applied to a thread's `kCount`
// values, so that half of them can be what it takes.
struct NoActivation {
  static __device__ __forceinline__ float scale() { return 1.f; }
  template <int kCount>
  __device__ __forceinline__ void apply(float*) const {}
};
struct ProductAlone : Epilogue<NoActivation, false, Second::kNone> {
  static constexpr bool kAny = false;
};

// What is added and multiplied by columns and rows.
struct Extras {
  const void* bias;      // [columns] of the result's type, on two elements, or nullptr
  const float* scale_a;  // of a row of a (stride 1) or of all (stride 0)
  const float* scale_b;  // of a column of b
  int scale_a_stride, scale_b_stride;
};

struct Problem {
  int rows, columns, depth, matrices;
  bool one_left, one_right, one_second;  // for all matrices
  int band;                              // cluster tiles along one side that are taken before the
  bool bands_of_rows;                    // next; that side is the rows
  int stagger;                           // 0 to kStages
  int left_rows;                         // of the box of a that one block loads
};

template <class E>
struct Arguments {
  CUtensorMap a, b, c, second;
  Problem problem;
  Extras extras;
  typename E::Activation activation;
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
template <class T>
__device__ __forceinline__ float2 unpacked(uint32_t both) {
  if constexpr (std::is_same_v<T, __half>) {
    return __half22float2(reinterpret_cast<const __half2&>(both));
  } else {
    return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(both));
  }
}

// Two columns of the bias; nothing past the end, and without a bias zeros.
template <class T>
struct BiasPair {
  std::conditional_t<sizeof(T) == 2, uint32_t, float2> both{};

  __device__ __forceinline__ void load(const void* bias, int column, int columns) {
    if (bias == nullptr || column >= columns) return;
    both = __ldg(reinterpret_cast<const decltype(both)*>(static_cast<const T*>(bias) + column));
  }
  __device__ __forceinline__ float2 floats() const {
    if constexpr (sizeof(T) == 2) {
      return unpacked<T>(both);
    } else {
      return both;
    }
  }
};

// 16 rows of one warp, 128 bytes of each: from registers to the result by shared memory and TMA,
// and of the residual the other way.
template <class T>
struct Rows {
  static constexpr int kColumns = 128 / sizeof(T), kValues = kColumns / 2;  // of a thread

  uint32_t buffers;  // two of 16 rows of 128 bytes
  uint32_t arrived;  // two barriers
  int lane, next = 0;
  uint32_t parities = 0;

  // The other buffer, once it has been read.
  __device__ __forceinline__ void turn() {
    if (lane == 0) stores_have_read<1>();
    __syncwarp();
    next ^= 1;
  }
  // Rows of the residual into a buffer that is free.
  __device__ __forceinline__ void ask(int buffer, const CUtensorMap* map, int column, int row,
                                      int matrix) const {
    if (lane != 0) return;
    mbarrier_expect(arrived + buffer * 8, 2048);
    load_box(buffers + buffer * 2048, map, column, row, matrix, arrived + buffer * 8);
  }
  // v[8 blocks of 8 columns or 4][4], as wgmma leaves them, plus what has arrived.
  __device__ __forceinline__ void add(float* v) {
    mbarrier_wait(arrived + next * 8, parities >> next & 1);
    parities ^= 1u << next;
    const uint32_t from = buffers + next * 2048;
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        uint32_t r[4];
        load_matrices(from + unit_of_halves(j), r[0], r[1], r[2], r[3]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 both = unpacked<T>(r[i]);
          v[4 * j + 2 * i] += both.x, v[4 * j + 2 * i + 1] += both.y;
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 upper = load_pair(from + unit_of_floats(j));
        const float2 lower = load_pair(from + unit_of_floats(j) + 1024);
        v[4 * j] += upper.x, v[4 * j + 1] += upper.y;
        v[4 * j + 2] += lower.x, v[4 * j + 3] += lower.y;
      }
    }
  }
  __device__ __forceinline__ void write(const float* v, const CUtensorMap* map, int column, int row,
                                        int matrix) const {
    const uint32_t to = buffers + next * 2048;
    if constexpr (sizeof(T) == 2) {
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const float* of = v + 4 * j;
        store_matrices(to + unit_of_halves(j), packed<T>(of[0], of[1]), packed<T>(of[2], of[3]),
                       packed<T>(of[4], of[5]), packed<T>(of[6], of[7]));
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        store_pair(to + unit_of_floats(j), v[4 * j], v[4 * j + 1]);
        store_pair(to + unit_of_floats(j) + 1024, v[4 * j + 2], v[4 * j + 3]);
      }
    }
    fence_shared_for_copies();
    __syncwarp();
    if (lane == 0) store_box(map, column, row, matrix, to);
  }

 private:
  // Where a thread's part of columns 8 j lies, swizzled as tensor copies do.
  __device__ __forceinline__ uint32_t unit_of_halves(int j) const {
    const int r = lane % 16;
    return r * 128 + ((j + lane / 16) ^ (r & 7)) * 16;
  }
  __device__ __forceinline__ uint32_t unit_of_floats(int j) const {
    const int r = lane / 4;
    return r * 128 + (lane & 1) * 8 + ((2 * j + (lane % 4) / 2) ^ r) * 16;
  }
};

template <class K, class S, class E>
static __global__ void __launch_bounds__(384, 1)
    multiply(const __grid_constant__ Arguments<E> given) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Out = typename K::Out;
  constexpr int kDepth = 128 / sizeof(typename K::Left);  // of a slice
  constexpr bool kResidual = E::kSecond == Second::kResidual;
  static_assert(K::kLeft == Major::kDepth || S::kLeftPart % 64 == 0);
  static_assert(K::kRight == Major::kDepth || S::kRightPart % 64 == 0);
  extern __shared__ __align__(1024) char memory[];  // as the swizzle of 128 bytes wants it
  uint32_t ring = shared_address(memory);
  asm("" : "+r"(ring));  // else it is computed anew for each slice
  const uint32_t out = ring + S::kStages * S::kStageBytes;
  const uint32_t of_columns = out + 8 * S::kOutBytes;
  const uint32_t full = of_columns + 2 * S::kColumnBytes, empty = full + 8 * S::kStages;
  const uint32_t arrived = empty + 8 * S::kStages;
  const Problem& problem = given.problem;

  const int group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / 128, 0);  // in a uniform register
  const uint32_t rank = S::kCluster == 1 ? 0 : rank_in_cluster();
  const int rank_row = rank % S::kClusterRows, rank_column = rank / S::kClusterRows;

  if (threadIdx.x == 0) {
    prefetch_map(&given.a);
    prefetch_map(&given.b);
    prefetch_map(&given.c);
    for (int i = 0; i < S::kStages; ++i) {
      mbarrier_init(full + 8 * i, 1);
      // Both warp groups of every block that this one sends to.
      mbarrier_init(empty + 8 * i, 2 * (S::kClusterRows + S::kClusterColumns - 1));
    }
    if constexpr (kResidual) {
      for (int i = 0; i < 16; ++i) mbarrier_init(arrived + 8 * i, 1);
    }
    mbarrier_init_fence();
  }
  if constexpr (S::kCluster > 1) {
    cluster_sync();
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
    fewer_registers<40>();
    if (threadIdx.x == 0) {
      const uint16_t same_rows = [&] {
        uint32_t mask = 0;
        for (int i = 0; i < S::kClusterColumns; ++i) mask |= 1u << (rank_row + i * S::kClusterRows);
        return mask;
      }();
      const uint16_t same_columns = ((1u << S::kClusterRows) - 1) << rank_column * S::kClusterRows;
      const uint32_t stage_bytes = (problem.left_rows * S::kClusterColumns + S::kColumns) * 128;
      const auto load = [&](auto major, auto part, bool shared, uint16_t blocks, uint32_t to,
                            const CUtensorMap* map, int line, int k, int matrix, uint32_t ready) {
        if constexpr (decltype(major)::value == Major::kDepth) {
          shared ? load_box_for(blocks, to, map, k, line, matrix, ready)
                 : load_box(to, map, k, line, matrix, ready);
        } else {
#pragma unroll
          for (int i = 0; i < decltype(part)::value / 64; ++i) {
            const uint32_t at = to + i * kDepth * 128;
            shared ? load_box_for(blocks, at, map, line + i * 64, k, matrix, ready)
                   : load_box(at, map, line + i * 64, k, matrix, ready);
          }
        }
      };
      for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
        const int3 tile = tiles.at(i);
        const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows;
        const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
        const int left_part = rank_column * S::kLeftPart, right_part = rank_row * S::kRightPart;
        for (int slice = 0; slice < slices; ++slice) {
          mbarrier_wait(empty + 8 * stage, parity ^ 1);
          const uint32_t ready = full + 8 * stage;
          const uint32_t left = ring + stage * S::kStageBytes, right = left + S::kLeftBytes;
          mbarrier_expect(ready, stage_bytes);
          const int k = slice * kDepth;
          load(std::integral_constant<Major, K::kLeft>{},
               std::integral_constant<int, S::kLeftPart>{}, S::kClusterColumns > 1, same_rows,
               left + left_part * 128, &given.a, row + left_part, k, problem.one_left ? 0 : tile.z,
               ready);
          load(std::integral_constant<Major, K::kRight>{},
               std::integral_constant<int, S::kRightPart>{}, S::kClusterRows > 1, same_columns,
               right + right_part * 128, &given.b, column + right_part, k,
               problem.one_right ? 0 : tile.z, ready);
          advance();
        }
      }
    }
  } else {
    more_registers<232>();
    constexpr int kBlocks = S::kBlocksOf64, kN = S::kColumns;
    constexpr int kSteps = 4;  // of 32 bytes in a slice
    constexpr int kLeftStep = K::kLeft == Major::kDepth ? 2 : 128;
    constexpr int kRightStep = K::kRight == Major::kDepth ? 2 : 128;
    // What is written at a time, and how often.
    constexpr int kChunk = Rows<Out>::kColumns, kValues = Rows<Out>::kValues;
    constexpr int kChunks = kN / kChunk, kPieces = kBlocks * kChunks;
    const int consumer = group - 1, thread = threadIdx.x % 128, warp = thread / 32;
    const int lane = threadIdx.x % 32;
    // Of few slices the first warp group could be a whole tile ahead.
    const int stagger = slices > 2 * S::kStages ? problem.stagger : 0;
    constexpr int kTurn = 1, kOwn = 2;  // named barriers, the latter for each warp group
    const bool tells = thread < S::kCluster && (thread % S::kClusterRows == rank_row ||
                                                thread / S::kClusterRows == rank_column);
    const auto release = [&](int of) {
      if (tells) mbarrier_arrive_at(empty + 8 * of, thread);
    };
    // Of the first stage. Within 256 KiB an address is a sum, and so is what describes it.
    const auto described = [](auto major, uint32_t address) {
      if constexpr (decltype(major)::value == Major::kDepth) return descriptor(address);
      return descriptor_by_rows<64 * 128>(address);
    };
    const uint64_t of_left =
        described(std::integral_constant<Major, K::kLeft>{}, ring + consumer * kBlocks * 64 * 128);
    const uint64_t of_right =
        described(std::integral_constant<Major, K::kRight>{}, ring + S::kLeftBytes);
    const int own = consumer * 4 + warp;
    Rows<Out> rows{out + own * S::kOutBytes, arrived + own * 16, lane};
    const uint32_t own_columns = of_columns + consumer * S::kColumnBytes;
    float d[kBlocks][kN / 2];

    for (int i = blockIdx.x / S::kCluster; i < count; i += clusters) {
      const int3 tile = tiles.at(i);
      const int row = (tile.x * S::kClusterRows + rank_row) * S::kRows + consumer * kBlocks * 64;
      const int column = (tile.y * S::kClusterColumns + rank_column) * S::kColumns;
      // The first row of 16, and the column, of what is written in a piece.
      const auto row_of = [&](int piece) { return row + piece / kChunks * 64 + warp * 16; };
      const auto column_of = [&](int piece) { return column + piece % kChunks * kChunk; };
      const int second = problem.one_second ? 0 : tile.z;
      BiasPair<Out> bias;
      float2 of_columns_b{0, 0};
      float of_rows_a[kBlocks][2] = {};
      if constexpr (E::kAny) {
        const int mine = column + 2 * thread;
        if (thread < kN / 2) bias.load(given.extras.bias, mine, problem.columns);
        if constexpr (E::kScaled) {
          const Extras& extras = given.extras;
          if (thread < kN / 2 && mine < problem.columns) {
            of_columns_b.x = __ldg(extras.scale_b + mine * extras.scale_b_stride);
            of_columns_b.y = __ldg(extras.scale_b + (mine + 1) * extras.scale_b_stride);
          }
#pragma unroll
          for (int half = 0; half < 2 * kBlocks; ++half) {
            const int r = row_of(half / 2 * kChunks) + lane / 4 + half % 2 * 8;
            if (r < problem.rows) {
              of_rows_a[half / 2][half % 2] = __ldg(extras.scale_a + r * extras.scale_a_stride);
            }
          }
        }
      }
      // The first two pieces into the buffers of the tile before, the others to the L2 cache.
      const auto ask_for_residual = [&] {
        if (lane == 0) stores_have_read<0>();
        __syncwarp();
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          if (piece < 2) {
            rows.ask(rows.next ^ 1 ^ piece, &given.second, column_of(piece), row_of(piece), second);
          } else if (lane == 0) {
            prefetch_box(&given.second, column_of(piece), row_of(piece), second);
          }
        }
        __syncwarp();
      };
      int before = 0;  // the stage that the products before these read
      const auto multiply_slices = [&](int first, int last) {
#pragma unroll 1
        for (int slice = first; slice < last; ++slice) {
          mbarrier_wait(full + 8 * stage, parity);
          const uint64_t left = of_left + stage * (S::kStageBytes / 16);
          const uint64_t right = of_right + stage * (S::kStageBytes / 16);
          products_fence();
#pragma unroll
          for (int step = 0; step < kSteps; ++step) {
#pragma unroll
            for (int block = 0; block < kBlocks; ++block) {
              Product<typename K::Left, typename K::Right, kN, K::kLeft, K::kRight>::run(
                  d[block], left + block * 512 + step * kLeftStep, right + step * kRightStep,
                  slice | step);
            }
          }
          products_commit();
          if constexpr (kResidual) {
            if (slice == 0) ask_for_residual();
          }
          products_wait<1>();
          if (slice > first) release(before);
          before = stage;
          advance();
        }
      };
      // At the end of a tile the warp groups take turns.
      const int alone = stagger == 0 || consumer == 0 ? slices : slices - stagger;
      multiply_slices(0, alone);
      if (stagger != 0) {
        if (consumer == 0) {
          barrier_arrive(kTurn, 256);
        } else {
          products_wait<0>();
          release(before);
          barrier_sync(kTurn, 256);
          multiply_slices(alone, slices);
        }
      }
      products_wait<0>();
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) pin(d[block]);
      release(before);

      // Four values: columns c and c + 1 of rows r and r + 8.
      const auto each = [&](auto run) {
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
          const float2 pair = load_pair(own_columns + (8 * j + 2 * (lane % 4)) * 4);
#pragma unroll
          for (int block = 0; block < kBlocks; ++block) run(d[block] + 4 * j, block, pair);
        }
      };
      // A warp may still read what the tile before has of its columns.
      if constexpr (E::kAny) barrier_sync(kOwn + consumer, 128);
      if constexpr (E::kScaled) {
        if (thread < kN / 2) store_pair(own_columns + thread * 8, of_columns_b.x, of_columns_b.y);
        barrier_sync(kOwn + consumer, 128);
        each([&](float* v, int block, float2 pair) {
          const float upper = of_rows_a[block][0], lower = of_rows_a[block][1];
          v[0] *= upper * pair.x, v[1] *= upper * pair.y;
          v[2] *= lower * pair.x, v[3] *= lower * pair.y;
        });
        if (given.extras.bias != nullptr) barrier_sync(kOwn + consumer, 128);
      }
      if constexpr (E::kAny) {
        if (!E::kScaled || given.extras.bias != nullptr) {
          const float scale = given.activation.scale();
          if (thread < kN / 2) {
            const float2 both = bias.floats();
            store_pair(own_columns + thread * 8, scale * both.x, scale * both.y);
          }
          barrier_sync(kOwn + consumer, 128);
        }
      }
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        float* v = d[piece / kChunks] + piece % kChunks * kValues;
        if constexpr (E::kAny) {
          if (!E::kScaled || given.extras.bias != nullptr) {
            const float scale = given.activation.scale();
#pragma unroll
            for (int j = 0; j < kValues / 4; ++j) {
              const float2 b =
                  load_pair(own_columns + (piece % kChunks * kChunk + 8 * j + 2 * (lane % 4)) * 4);
              v[4 * j] = fmaf(v[4 * j], scale, b.x), v[4 * j + 1] = fmaf(v[4 * j + 1], scale, b.y);
              v[4 * j + 2] = fmaf(v[4 * j + 2], scale, b.x);
              v[4 * j + 3] = fmaf(v[4 * j + 3], scale, b.y);
            }
          }
        }
        if constexpr (E::kSecond == Second::kKept) {
          float whole[kValues];
#pragma unroll
          for (int j = 0; j < kValues; ++j) whole[j] = v[j] * (1 / given.activation.scale());
          rows.turn();
          rows.write(whole, &given.second, column_of(piece), row_of(piece), second);
        }
        if constexpr (E::kAny) given.activation.template apply<kValues>(v);
        if constexpr (kResidual) {
          // The piece before has been read by now, and its buffer takes the piece after.
          if (piece > 0) {
            if (lane == 0) stores_have_read<0>();
            __syncwarp();
            if (piece + 1 < kPieces) {
              rows.ask(rows.next, &given.second, column_of(piece + 1), row_of(piece + 1), second);
            }
          }
          rows.next ^= 1;
          __syncwarp();
          rows.add(v);
        } else {
          rows.turn();
        }
        rows.write(v, &given.c, column_of(piece), row_of(piece), tile.z);
      }
    }
    // Shared memory stays until the copies have read it.
    if (lane == 0) stores_have_read<0>();
  }
  if constexpr (S::kCluster > 1) {
    __syncwarp();
    cluster_sync();  // until no block sends here any more
  }
#endif
}

// On the host

// A matrix of lines along the depth (rows of a, columns of b), strides in elements; no
// matrix_stride: one for all matrices.
struct Operand {
  const void* data;
  int64_t line_stride, depth_stride, matrix_stride;
};
// Rows without gaps between their elements.
struct Result {
  const void* data;
  int64_t row_stride, matrix_stride;
};

struct Order {
  int band = 8;
  bool bands_of_rows = true;
  int stagger = 4;
};

// One of the dimensions of a and b lies side by side (the stride of the kind's Major is 1); all
// addresses and other strides are multiples of 16 bytes, and columns even where the epilogue is not
// ProductAlone.
struct Given {
  Operand a, b;
  Result c, second;
  int64_t rows, columns, depth, matrices;
  Extras extras;
  Order order;
};

// A row of a box; more than that read at a time costs 0.2 to 1.5 % (4096 and 8192 cubed, H200).
constexpr auto kPromotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

// The map of an operand whose tiles have `part` of its lines in a box.
template <class T, Major kMajor>
bool encode_operand(CUtensorMap* map, const Operand& of, int64_t lines, int64_t depth,
                    int64_t matrices, int part) {
  // What float32 is multiplied as: rounded by the copy, where the product itself would truncate.
  constexpr auto kType = std::is_same_v<T, float> ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : kMapType<T>;
  const int64_t count = of.matrix_stride == 0 ? 1 : matrices;
  // One matrix has no distance to the next, but the map wants one.
  if constexpr (kMajor == Major::kDepth) {
    const int64_t next = count == 1 ? lines * of.line_stride : of.matrix_stride;
    return encode_map(map, kType, sizeof(T), of.data, lines, depth, of.line_stride, part, count,
                      next, kPromotion);
  } else {
    const int64_t next = count == 1 ? depth * of.depth_stride : of.matrix_stride;
    return encode_map(map, kType, sizeof(T), of.data, depth, lines, of.depth_stride,
                      128 / sizeof(T), count, next, kPromotion);
  }
}
template <class T>
bool encode_result(CUtensorMap* map, const Result& of, const Given& given) {
  const int64_t count = of.matrix_stride == 0 ? 1 : given.matrices;
  return encode_map(map, kMapType<T>, sizeof(T), of.data, given.rows, given.columns, of.row_stride,
                    16, count, count == 1 ? given.rows * of.row_stride : of.matrix_stride);
}

// As many blocks as the device holds, or fewer of few tiles.
template <class K, class S, class E>
cudaError_t launch(const Given& given, const typename E::Activation& activation,
                   cudaStream_t stream) {
  using Out = typename K::Out;
  Arguments<E> arguments;
  // Of fewer rows than a tile has no box is larger: what is filled in outside of the matrix takes
  // longer than what is read. The rest of the shared memory is multiplied and not written.
  int left_rows = S::kLeftPart;
  if (S::kCluster == 1 && K::kLeft == Major::kDepth && given.rows < S::kRows) {
    left_rows = static_cast<int>(given.rows);
  }
  if (!encode_operand<typename K::Left, K::kLeft>(&arguments.a, given.a, given.rows, given.depth,
                                                  given.matrices, left_rows) ||
      !encode_operand<typename K::Right, K::kRight>(&arguments.b, given.b, given.columns,
                                                    given.depth, given.matrices, S::kRightPart) ||
      !encode_result<Out>(&arguments.c, given.c, given)) {
    return cudaErrorInvalidValue;
  }
  if constexpr (E::kSecond != Second::kNone) {
    if (!encode_result<Out>(&arguments.second, given.second, given)) return cudaErrorInvalidValue;
  } else {
    arguments.second = arguments.c;
  }
  arguments.problem = {static_cast<int>(given.rows),
                       static_cast<int>(given.columns),
                       static_cast<int>(given.depth),
                       static_cast<int>(given.matrices),
                       given.a.matrix_stride == 0,
                       given.b.matrix_stride == 0,
                       given.second.matrix_stride == 0,
                       given.order.band,
                       given.order.bands_of_rows,
                       std::min(given.order.stagger, S::kStages),
                       left_rows};
  arguments.extras = given.extras;
  arguments.activation = activation;
  const auto kernel = &multiply<K, S, E>;

  cudaLaunchConfig_t config{};
  config.blockDim = 384;
  config.dynamicSmemBytes = S::kShared;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {S::kCluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;

  constexpr int kDevices = 64;
  static std::atomic<int> resident[kDevices];  // clusters; 0: not asked yet
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  int clusters = device < kDevices ? resident[device].load(std::memory_order_relaxed) : 0;
  if (clusters == 0) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
    config.gridDim = S::kCluster;
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    if (error != cudaSuccess) return error;
    if (clusters < 1) return cudaErrorInvalidConfiguration;
    if (device < kDevices) resident[device].store(clusters, std::memory_order_relaxed);
  }
  const auto parts = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  const int64_t tiles = parts(given.rows, S::kRows * S::kClusterRows) *
                        parts(given.columns, S::kColumns * S::kClusterColumns) * given.matrices;
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  config.gridDim = static_cast<unsigned>((tiles < clusters ? tiles : clusters) * S::kCluster);
  return cudaLaunchKernelEx(&config, kernel, arguments);
}

// Calls run(Shape) with the tile that a product gets.
template <class Run>
cudaError_t with_shape(int64_t rows, int64_t columns, int64_t matrices, const Run& run) {
  switch (fastest_tiling(rows, columns, matrices)) {
    case 0:
      return run(Shape<128, 64, 8, 1, 1>{});
    case 1:
      return run(Shape<128, 128, 6, 1, 1>{});
    case 2:
      return run(Shape<128, 128, 6, 2, 1>{});
    default:
      return run(Shape<128, 256, 4, 2, 1>{});
  }
}

}  // namespace kernforge::hopper
