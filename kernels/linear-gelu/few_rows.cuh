// SPDX-License-Identifier: Apache-2.0
//
// y = gelu(x w^T + b) for few rows of x, as in decoding, where reading w is what takes the time.
//
// A block has 16 or 32 columns of the result and its warps share the depth; every lane reads 16
// bytes of rows of w at a time, a step ahead, straight to registers. The tensor cores multiply
// (mma.sync) with w on the left, so that 8 rows of x are the narrow side; which numbers of the
// depth meet in which step does not matter, so each lane's 16 bytes are used as they come.
//
// Sums are in one order: the result is the same bits every time.

#pragma once

#include <cstdint>
#include <type_traits>

#include "kernforge/dtype.cuh"

namespace linear_gelu::few_rows {

struct Problem {
  int rows, columns, depth;
  int64_t x_stride, w_stride, y_stride;  // in elements
};

__device__ __forceinline__ uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint4 load(const void* from) {
  return __ldg(static_cast<const uint4*>(from));
}

template <class T>
__device__ __forceinline__ void multiply(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                         uint32_t a3, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else if constexpr (std::is_same_v<T, float>) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// What the product takes: float32 rounded to tf32, where it would truncate.
template <class T>
__device__ __forceinline__ uint4 rounded(uint4 v) {
  if constexpr (std::is_same_v<T, float>) {
    const auto round = [](uint32_t& one) {
      asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(one) : "f"(__uint_as_float(one)));
    };
    round(v.x), round(v.y), round(v.z), round(v.w);
  }
  return v;
}

// kEights: groups of 8 rows of x. kTiles: of 16 columns of the result a block. kUnroll: chunks of
// 64 bytes of the depth a step of one warp.
template <class T, class Activation, int kEights, int kTiles, int kUnroll, int kWarps>
static __global__ void __launch_bounds__(kWarps * 32)
    by_tensor_cores(const T* __restrict__ x, const T* __restrict__ w, const T* __restrict__ bias,
                    T* __restrict__ y, T* __restrict__ z, const Problem p) {
  constexpr int kOfLane = 16 / sizeof(T), kChunk = 4 * kOfLane, kStep = kChunk * kUnroll;
  constexpr int kColumns = 16 * kTiles, kRows = 8 * kEights;
  __shared__ float partial[kWarps][kColumns][kRows + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int column = blockIdx.x * kColumns;

  const T* of_w[kTiles][2];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Columns past the end repeat the last one and are not written.
      const int64_t row = min(column + tile * 16 + half * 8 + g, p.columns - 1);
      of_w[tile][half] = w + row * p.w_stride + t * kOfLane;
    }
  }
  const T* of_x[kEights];
#pragma unroll
  for (int e = 0; e < kEights; ++e) {
    of_x[e] = x + int64_t{min(e * 8 + g, p.rows - 1)} * p.x_stride + t * kOfLane;
  }

  // A thread writes one column, whose bias is asked for before everything else.
  static_assert(kWarps * 32 % kColumns == 0);
  const int own = column + threadIdx.x % kColumns;
  T added = kernforge::narrow<T>(0);
  if (bias != nullptr && own < p.columns) added = bias[own];

  float d[kTiles][kEights][4] = {};
  // The step that is multiplied, and the one after it, which is on its way.
  struct Step {
    uint4 w[kUnroll][kTiles][2], x[kUnroll][kEights];
  };
  Step now, next;
  const auto fetch = [&](int k) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const bool inside = k + u * kChunk + t * kOfLane < p.depth;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          next.w[u][tile][half] = uint4{};
          if (inside) next.w[u][tile][half] = load_once(of_w[tile][half] + k + u * kChunk);
        }
      }
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        next.x[u][e] = uint4{};
        if (inside) next.x[u][e] = load(of_x[e] + k + u * kChunk);
      }
    }
  };
  int k = warp * kStep;
  fetch(k);
  for (; k < p.depth; k += kWarps * kStep) {
    now = next;
    fetch(k + kWarps * kStep);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int e = 0; e < kEights; ++e) {
        const uint4 right = rounded<T>(now.x[u][e]);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint4 upper = rounded<T>(now.w[u][tile][0]);
          const uint4 lower = rounded<T>(now.w[u][tile][1]);
          multiply<T>(d[tile][e], upper.x, lower.x, upper.y, lower.y, right.x, right.y);
          multiply<T>(d[tile][e], upper.z, lower.z, upper.w, lower.w, right.z, right.w);
        }
      }
    }
  }

#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int e = 0; e < kEights; ++e) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][tile * 16 + i / 2 * 8 + g][e * 8 + 2 * t + i % 2] = d[tile][e][i];
      }
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kColumns * kRows; i += kWarps * 32) {
    const int c = i % kColumns, row = i / kColumns;
    if (row >= p.rows || column + c >= p.columns) continue;
    float sum = kernforge::widen(added);
#pragma unroll
    for (int from = 0; from < kWarps; ++from) sum += partial[from][c][row];
    const int64_t at = row * p.y_stride + column + c;
    if (z != nullptr) z[at] = kernforge::narrow<T>(sum);
    y[at] = kernforge::narrow<T>(Activation::of(sum));
  }
}

}  // namespace linear_gelu::few_rows
