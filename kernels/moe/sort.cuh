// SPDX-License-Identifier: Apache-2.0
//
// Tokens side by side by expert: a stable counting sort of the assignments (one is a token and one
// of its experts), the table of tiles that the products walk, rows there and back.

#pragma once

#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "tables.h"

namespace moe::sorting {

constexpr int kThreads = 256;

struct Assignments {
  const int32_t* ids;
  int count, top, experts, chunks;
};

// The expert of assignment i, or -1.
__device__ __forceinline__ int expert_of(const Assignments& of, int i) {
  const int e = i < of.count ? of.ids[i] : -1;
  return static_cast<unsigned>(e) < static_cast<unsigned>(of.experts) ? e : -1;
}

__device__ __forceinline__ int sum_before(int v, int lane) {  // of the lanes up to this one
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFu, v, width);
    if (lane >= width) v += other;
  }
  return v;
}

// From how often each expert is there, in shared memory, to their first rows there, and to the
// tiles. By the whole block.
__device__ __forceinline__ void lay_out(const Assignments& of, const Tables& to, int most,
                                        const int* counts, int* rows) {
  __shared__ int tiles[kMostExperts], rows_in_all;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  if (warp == 0) {
    int row = 0, tile = 0;
    for (int from = 0; from < of.experts; from += 32) {
      const int e = from + lane;
      const int own = e < of.experts ? counts[e] : 0;
      const int padded = (own + kPad - 1) / kPad * kPad, parts = (own + most - 1) / most;
      const int rows_upto = sum_before(padded, lane), tiles_upto = sum_before(parts, lane);
      if (e < of.experts) {
        rows[e] = row + rows_upto - padded;
        tiles[e] = tile + tiles_upto - parts;
        if (to.ends != nullptr) to.ends[e] = row + rows_upto;
      }
      row += __shfl_sync(0xFFFFFFFFu, rows_upto, 31);
      tile += __shfl_sync(0xFFFFFFFFu, tiles_upto, 31);
    }
    if (lane == 0) *to.tiles_in_all = tile, rows_in_all = row;
  }
  __syncthreads();
  if (to.assignments != nullptr) {  // of rows that no assignment has
    for (int e = threadIdx.x; e < of.experts; e += blockDim.x) {
      for (int row = rows[e] + counts[e]; row % kPad != 0; ++row) to.assignments[row] = -1;
    }
    const int all = static_cast<int>(rows_of(of.count, of.experts));
    for (int row = rows_in_all + threadIdx.x; row < all; row += blockDim.x) {
      to.assignments[row] = -1;
    }
  }
  // An expert with few tiles is one thread's, the others are a warp's each.
  constexpr int kAlone = 4;
  const auto write = [&](int e, int parts, int first, int step) {
    const int units = (counts[e] + kUnit - 1) / kUnit;
    const int each = parts == 1 ? units : units / parts, more = units - each * parts;
    for (int i = first; i < parts; i += step) {
      const int from = (i * each + min(i, more)) * kUnit, band = i / kBand * kBand;
      Tile tile;
      tile.expert = e;
      tile.band = tiles[e] + band;
      tile.row = rows[e] + from;
      tile.tokens = static_cast<int16_t>(min((each + (i < more)) * kUnit, counts[e] - from));
      tile.width = static_cast<int16_t>(min(kBand, parts - band));
      to.tiles[tiles[e] + i] = tile;
    }
  };
  bool crowded = false;
  for (int e = threadIdx.x; e < of.experts; e += blockDim.x) {
    const int parts = (counts[e] + most - 1) / most;
    if (parts <= kAlone) {
      write(e, parts, 0, 1);
    } else {
      crowded = true;
    }
  }
  if (__syncthreads_or(crowded)) {
    for (int e = warp; e < of.experts; e += warps) {
      const int parts = (counts[e] + most - 1) / most;
      if (parts > kAlone) write(e, parts, lane, 32);
    }
  }
}

// How many of ids[0, i) are ids[i]: the threads of a block have one i each.
__device__ __forceinline__ int rank_of(const uint16_t* ids, int i) {
  const uint32_t own = ids[i], both = own << 16 | own;
  int rank = 0;
  for (int at = 0; at < i; at += 8) {
    const uint4 eight = *reinterpret_cast<const uint4*>(ids + at);
    const uint32_t pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t other = pairs[j] ^ both;
      rank += (other & 0xFFFF) == 0 && at + 2 * j < i;
      rank += other >> 16 == 0 && at + 2 * j + 1 < i;
    }
  }
  return rank;
}

__device__ __forceinline__ void put(const Assignments& of, const Tables& to, int i, int row) {
  if (i < of.count) to.positions[i] = row;
  if (row < 0) return;
  to.sources[row] = i / of.top;
  if (to.assignments != nullptr) to.assignments[row] = i;
}

// How often the chunk has each expert.
static __global__ void __launch_bounds__(kChunk) count(const Assignments of, const Tables to) {
  kernforge::grid_dependency_synchronize();
  __shared__ int counts[kMostExperts];
  for (int e = threadIdx.x; e < of.experts; e += kChunk) counts[e] = 0;
  __syncthreads();
  const int e = expert_of(of, blockIdx.x * kChunk + threadIdx.x);
  if (e >= 0) atomicAdd(&counts[e], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < of.experts; e += kChunk) {
    to.counts[e * of.chunks + blockIdx.x] = counts[e];
  }
}

// One block: counts become sums, then the experts' first rows and the tiles.
static __global__ void __launch_bounds__(1024)
    scan(const Assignments of, const Tables to, const int most) {
  kernforge::grid_dependency_synchronize();
  __shared__ int counts[kMostExperts], rows[kMostExperts];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  for (int e = warp; e < of.experts; e += warps) {
    int before = 0;
    for (int from = 0; from < of.chunks; from += 32) {
      const int chunk = from + lane;
      const int own = chunk < of.chunks ? to.counts[e * of.chunks + chunk] : 0;
      const int upto = sum_before(own, lane);
      if (chunk < of.chunks) to.counts[e * of.chunks + chunk] = before + upto - own;
      before += __shfl_sync(0xFFFFFFFFu, upto, 31);
    }
    if (lane == 0) counts[e] = before;
  }
  __syncthreads();
  lay_out(of, to, most, counts, rows);
  for (int e = threadIdx.x; e < of.experts; e += blockDim.x) to.first_row[e] = rows[e];
}

// The row of each assignment, in their order.
static __global__ void __launch_bounds__(kChunk) place(const Assignments of, const Tables to) {
  kernforge::grid_dependency_synchronize();
  __shared__ __align__(16) uint16_t ids[kChunk];
  const int i = blockIdx.x * kChunk + threadIdx.x, e = expert_of(of, i);
  ids[threadIdx.x] = static_cast<uint16_t>(e);
  const int first = e < 0 ? 0 : to.first_row[e] + to.counts[e * of.chunks + blockIdx.x];
  __syncthreads();
  put(of, to, i, e < 0 ? -1 : first + rank_of(ids, threadIdx.x));
}

// All of it, of few assignments, by one block.
static __global__ void __launch_bounds__(kFew)
    sort_few(const Assignments of, const Tables to, const int most) {
  kernforge::grid_dependency_synchronize();
  __shared__ int counts[kMostExperts], rows[kMostExperts];
  __shared__ __align__(16) uint16_t ids[kFew];
  const int i = threadIdx.x;
  for (int own = i; own < of.experts; own += blockDim.x) counts[own] = 0;
  const int e = expert_of(of, i);
  ids[i] = static_cast<uint16_t>(e);
  __syncthreads();
  if (e >= 0) atomicAdd(&counts[e], 1);
  __syncthreads();
  lay_out(of, to, most, counts, rows);
  if (i < of.count) put(of, to, i, e < 0 ? -1 : rows[e] + rank_of(ids, i));
}

template <class T, int kLength>
using Vector = kernforge::AlignedVector<T, kLength>;

// A row of x to each of its places; one block a token.
template <class T, int kLength>
static __global__ void __launch_bounds__(kThreads)
    spread(const T* x, T* to, const int* positions, const int top, const int64_t width) {
  kernforge::grid_dependency_synchronize();
  const int64_t token = blockIdx.x;
  const int* places = positions + token * top;
  for (int64_t c = threadIdx.x * kLength; c < width; c += kThreads * kLength) {
    const auto v = *reinterpret_cast<const Vector<T, kLength>*>(x + token * width + c);
    for (int j = 0; j < top; ++j) {
      const int64_t row = places[j];
      if (row >= 0) *reinterpret_cast<Vector<T, kLength>*>(to + row * width + c) = v;
    }
  }
}

// The weighted sum of a token's rows, in the order of its experts; one block a token.
template <class T, int kLength>
static __global__ void __launch_bounds__(kThreads)
    gather(const T* from, T* y, const int* positions, const float* weights, const int top,
           const int64_t width) {
  using W = kernforge::widened_t<T>;
  constexpr int kAtOnce = 8;
  const int64_t token = blockIdx.x;
  kernforge::grid_dependency_synchronize();
  for (int64_t c = threadIdx.x * kLength; c < width; c += kThreads * kLength) {
    W sums[kLength] = {};
    for (int first = 0; first < top; first += kAtOnce) {
      Vector<T, kLength> rows[kAtOnce];
      W weight[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const bool there = first + j < top;
        const int64_t row = there ? positions[token * top + first + j] : -1;
        weight[j] = there ? weights[token * top + first + j] : 0;
        rows[j] = {};
        if (row >= 0) {
          rows[j] = *reinterpret_cast<const Vector<T, kLength>*>(from + row * width + c);
        } else {
          weight[j] = 0;
        }
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < kLength; ++i) {
          sums[i] = fma(weight[j], static_cast<W>(kernforge::widen(rows[j].at[i])), sums[i]);
        }
      }
    }
    Vector<T, kLength> out;
#pragma unroll
    for (int i = 0; i < kLength; ++i) out.at[i] = kernforge::narrow<T>(sums[i]);
    *reinterpret_cast<Vector<T, kLength>*>(y + token * width + c) = out;
  }
}

}  // namespace moe::sorting
