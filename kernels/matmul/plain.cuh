// SPDX-License-Identifier: Apache-2.0
//
// c = a b of any sizes, strides and addresses, on any GPU: no tensor cores, each product exact in
// the type that sums. For float32 that may not be rounded to tf32, float64, small products, and all
// GPUs but those of compute capability 9.0.

#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernforge/dtype.cuh"
#include "matmul.h"

namespace matmul::plain {

constexpr int kThreads = 256, kDepth = 16;

// Not in line: a thread has 64 results.
template <class W>
static __device__ __noinline__ W activated(Activation activation, W z) {
  switch (activation) {
    case Activation::kRelu:
      return z < 0 ? W{0} : z;  // NaN stays
    case Activation::kGeluTanh: {
      constexpr W kTwice = 1.5957691216057308, kCubic = 0.044715;
      return z / (1 + exp(-kTwice * (z + kCubic * z * z * z)));
    }
    case Activation::kGeluErf:
      return W{0.5} * z * erfc(W{-0.7071067811865476} * z);
    case Activation::kSilu:
      return z / (1 + exp(-z));
    default:
      return z;
  }
}

// uint8_t: one of the types of fp8.
template <class T>
__device__ __forceinline__ auto wide(T v, Type type) {
  if constexpr (sizeof(T) == 1) {
    const auto format = type == Type::kE4M3 ? __NV_E4M3 : __NV_E5M2;
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, format)));
  } else {
    return kernforge::widen(v);
  }
}

// 16 x 16 threads, each with kTile / 16 rows and as many columns, four side by side.
template <class T, class Out, int kTile>
static __global__ void __launch_bounds__(kThreads) multiply(const __grid_constant__ Matmul of) {
  using W = kernforge::widened_t<Out>;
  constexpr int kEach = kTile / 16, kLoads = kTile * kDepth / kThreads;
  __shared__ __align__(16) W left[kDepth][kTile + 4], right[kDepth][kTile + 4];
  const int64_t across = (of.columns + kTile - 1) / kTile;
  const int64_t row = blockIdx.x / across * kTile, column = blockIdx.x % across * kTile;
  const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  // Threads beside each other read what lies side by side.
  const bool a_by_depth = of.a.column_stride == 1, b_by_depth = of.b.row_stride == 1;
  const auto line_of = [](bool by_depth, int i) {
    return by_depth ? threadIdx.x / kDepth + i * (kThreads / kDepth) : threadIdx.x % kTile;
  };
  const auto depth_of = [](bool by_depth, int i) {
    return by_depth ? threadIdx.x % kDepth : threadIdx.x / kTile + i * (kThreads / kTile);
  };

  for (int64_t matrix = blockIdx.y; matrix < of.matrices; matrix += gridDim.y) {
    const T* a = static_cast<const T*>(of.a.data) + matrix * of.a.matrix_stride;
    const T* b = static_cast<const T*>(of.b.data) + matrix * of.b.matrix_stride;
    W of_a[kLoads], of_b[kLoads];
    const auto fetch = [&](int64_t k) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        int64_t line = row + line_of(a_by_depth, i), at = k + depth_of(a_by_depth, i);
        of_a[i] = 0;
        if (at < of.depth && line < of.rows) {
          of_a[i] = wide(a[line * of.a.row_stride + at * of.a.column_stride], of.left);
        }
        line = column + line_of(b_by_depth, i), at = k + depth_of(b_by_depth, i);
        of_b[i] = 0;
        if (at < of.depth && line < of.columns) {
          of_b[i] = wide(b[at * of.b.row_stride + line * of.b.column_stride], of.right);
        }
      }
    };
    W sums[kEach][kEach] = {};
    fetch(0);
    for (int64_t k = 0; k < of.depth; k += kDepth) {
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        left[depth_of(a_by_depth, i)][line_of(a_by_depth, i)] = of_a[i];
        right[depth_of(b_by_depth, i)][line_of(b_by_depth, i)] = of_b[i];
      }
      __syncthreads();
      fetch(k + kDepth);
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        W x[kEach], y[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          x[i] = left[d][i / 4 * 64 + ty * 4 + i % 4];
          y[i] = right[d][i / 4 * 64 + tx * 4 + i % 4];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sums[i][j] = fma(x[i], y[j], sums[i][j]);
        }
      }
    }
    const Extras& extras = of.extras;
    Out* c = static_cast<Out*>(const_cast<void*>(of.c.data)) + matrix * of.c.matrix_stride;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t r = row + i / 4 * 64 + ty * 4 + i % 4;
        const int64_t at = column + j / 4 * 64 + tx * 4 + j % 4;
        if (r >= of.rows || at >= of.columns) continue;
        W v = sums[i][j];
        if (extras.scale_b != nullptr) v *= extras.scale_b[at * extras.scale_b_stride];
        if (extras.scale_a != nullptr) v *= extras.scale_a[r * extras.scale_a_stride];
        if (extras.bias != nullptr) v += kernforge::widen(static_cast<const Out*>(extras.bias)[at]);
        if (extras.activation != Activation::kNone) v = activated(extras.activation, v);
        if (extras.residual.data != nullptr) {
          v += kernforge::widen(static_cast<const Out*>(
              extras.residual
                  .data)[matrix * extras.residual.matrix_stride + r * extras.residual.row_stride +
                         at * extras.residual.column_stride]);
        }
        c[r * of.c.row_stride + at * of.c.column_stride] = kernforge::narrow<Out>(v);
      }
    }
  }
}

// The same numbers with other strides: by tiles, so that both sides are read and written in order.
template <class T>
static __global__ void __launch_bounds__(kThreads)
    copy(const Matrices from, const Matrices to, int64_t rows, int64_t columns, int64_t matrices) {
  __shared__ T tile[32][33];
  const int64_t across = (columns + 31) / 32;
  const int64_t row = blockIdx.x / across * 32, column = blockIdx.x % across * 32;
  const int fast = threadIdx.x % 32, slow = threadIdx.x / 32;
  const bool read_by_rows = from.column_stride == 1 || from.row_stride != 1;
  const bool write_by_rows = to.column_stride == 1 || to.row_stride != 1;
  for (int64_t matrix = blockIdx.y; matrix < matrices; matrix += gridDim.y) {
    const T* source = static_cast<const T*>(from.data) + matrix * from.matrix_stride;
    T* target = static_cast<T*>(const_cast<void*>(to.data)) + matrix * to.matrix_stride;
    for (int i = slow; i < 32; i += kThreads / 32) {
      const int r = read_by_rows ? i : fast, c = read_by_rows ? fast : i;
      if (row + r < rows && column + c < columns) {
        tile[r][c] = source[(row + r) * from.row_stride + (column + c) * from.column_stride];
      }
    }
    __syncthreads();
    for (int i = slow; i < 32; i += kThreads / 32) {
      const int r = write_by_rows ? i : fast, c = write_by_rows ? fast : i;
      if (row + r < rows && column + c < columns) {
        target[(row + r) * to.row_stride + (column + c) * to.column_stride] = tile[r][c];
      }
    }
    __syncthreads();
  }
}

}  // namespace matmul::plain
