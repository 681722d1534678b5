// SPDX-License-Identifier: Apache-2.0
//
// What follows a sum of kernforge/plain_tiles.cuh, and copies to other strides. For float32 that
// may not be rounded to tf32, float64, small products, and all GPUs but those of compute capability
// 9.0.

#pragma once

#include <cuda_fp8.h>

#include <cstdint>

#include "kernforge/dtype.cuh"
#include "kernforge/plain_tiles.cuh"
#include "matmul.h"

namespace matmul::plain {

constexpr int kCopied = 64;  // rows and columns of a tile of a copy

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
template <class T, class Out>
struct Finish {
  using W = kernforge::widened_t<Out>;
  Matrices c;
  Type of_left, of_right;
  Extras extras;

  __device__ __forceinline__ W left(T v) const { return wide(v, of_left); }
  __device__ __forceinline__ W right(T v) const { return wide(v, of_right); }
  __device__ __forceinline__ void operator()(W v, int64_t row, int64_t column,
                                             int64_t matrix) const {
    if (extras.scale_b != nullptr) v *= extras.scale_b[column * extras.scale_b_stride];
    if (extras.scale_a != nullptr) v *= extras.scale_a[row * extras.scale_a_stride];
    if (extras.bias != nullptr) v += at(extras.bias, column);
    if (extras.activation != Activation::kNone) v = activated(extras.activation, v);
    if (extras.residual.data != nullptr) {
      v += at(extras.residual.data, place(extras.residual, row, column, matrix));
    }
    static_cast<Out*>(const_cast<void*>(c.data))[place(c, row, column, matrix)] =
        kernforge::narrow<Out>(v);
  }

 private:
  static __device__ __forceinline__ W wide(T v, Type type) {
    if constexpr (sizeof(T) == 1) {
      const auto format = type == Type::kE4M3 ? __NV_E4M3 : __NV_E5M2;
      return __half2float(__half(__nv_cvt_fp8_to_halfraw(v, format)));
    } else {
      return kernforge::widen(v);
    }
  }
  static __device__ __forceinline__ int64_t place(const Matrices& of, int64_t row, int64_t column,
                                                  int64_t matrix) {
    return matrix * of.matrix_stride + row * of.row_stride + column * of.column_stride;
  }
  static __device__ __forceinline__ W at(const void* data, int64_t place) {
    return kernforge::widen(static_cast<const Out*>(data)[place]);
  }
};

// The same numbers with other strides: by tiles, so that both sides are read and written in order.
template <class T>
static __global__ void __launch_bounds__(kernforge::plain::kThreads)
    copy(const Matrices from, const Matrices to, int64_t rows, int64_t columns, int64_t matrices) {
  constexpr int kSide = kCopied, kLines = kernforge::plain::kThreads / kSide;
  __shared__ T tile[kSide][kSide + 4 / sizeof(T)];
  const int64_t across = (columns + kSide - 1) / kSide;
  const int64_t row = blockIdx.x / across * kSide, column = blockIdx.x % across * kSide;
  const int fast = threadIdx.x % kSide, slow = threadIdx.x / kSide;
  const bool read_by_rows = from.column_stride == 1 || from.row_stride != 1;
  const bool write_by_rows = to.column_stride == 1 || to.row_stride != 1;
  for (int64_t matrix = blockIdx.y; matrix < matrices; matrix += gridDim.y) {
    const T* source = static_cast<const T*>(from.data) + matrix * from.matrix_stride;
    T* target = static_cast<T*>(const_cast<void*>(to.data)) + matrix * to.matrix_stride;
    T held[kSide / kLines];  // all are asked for before the first is stored
#pragma unroll
    for (int i = 0; i < kSide / kLines; ++i) {
      const int line = slow + i * kLines;
      const int64_t r = row + (read_by_rows ? line : fast);
      const int64_t c = column + (read_by_rows ? fast : line);
      if (r < rows && c < columns) held[i] = source[r * from.row_stride + c * from.column_stride];
    }
#pragma unroll
    for (int i = 0; i < kSide / kLines; ++i) {
      const int line = slow + i * kLines;
      tile[read_by_rows ? line : fast][read_by_rows ? fast : line] = held[i];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSide / kLines; ++i) {
      const int line = slow + i * kLines;
      const int r = write_by_rows ? line : fast, c = write_by_rows ? fast : line;
      if (row + r < rows && column + c < columns) {
        target[(row + r) * to.row_stride + (column + c) * to.column_stride] = tile[r][c];
      }
    }
    __syncthreads();
  }
}

}  // namespace matmul::plain
