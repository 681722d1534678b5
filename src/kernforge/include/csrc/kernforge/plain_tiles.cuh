// SPDX-License-Identifier: Apache-2.0
//
// c = a b of any sizes, strides and addresses, on any GPU: no tensor cores, each product exact in
// the type that sums, and each sum in one order. What a number of the operands is and what becomes
// of a sum is the caller's:
//
//   struct Finish {
//     __device__ float left(__half v) const;   // likewise right
//     __device__ void operator()(float sum, int64_t row, int64_t column, int64_t matrix) const;
//   };
//   kernforge::plain::launch<__half, float>(problem, Finish{...}, stream);

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace kernforge::plain {

// `matrices` matrices of lines along the depth (rows of a, columns of b); strides in elements.
struct Operand {
  const void* data;
  int64_t line_stride, depth_stride, matrix_stride;
};
struct Problem {
  Operand a, b;
  int64_t rows, columns, depth, matrices;
};

constexpr int kThreads = 256, kDepth = 16;

template <class T>
struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) Four {
  T at[4];
};

// What one thread copies of an operand: four numbers at a time, along the depth if they lie side by
// side there, else along the lines.
template <class T, int kTile>
struct Side {
  static constexpr int kTimes = kTile * kDepth / kThreads / 4;
  static constexpr int kQuads = kTile / 4;  // of lines
  static constexpr int kRow = kTile + 4;    // of shared memory

  const T* from;         // the thread's first number of the next slice
  int64_t step, stride;  // to the next time, and along the four
  int64_t line, lines;
  bool by_depth, whole;
  int at;     // in the depth of a slice
  int place;  // in shared memory
  Four<T> held[kTimes];

  __device__ __forceinline__ Side(const Operand& of, int64_t matrix, int64_t first, int64_t count)
      : lines(count), by_depth(of.depth_stride == 1) {
    const T* data = static_cast<const T*>(of.data) + matrix * of.matrix_stride;
    const int own = by_depth ? threadIdx.x / 4 : threadIdx.x % kQuads * 4;
    at = by_depth ? threadIdx.x % 4 * 4 : threadIdx.x / kQuads;
    place = at * kRow + own;
    line = first + own;
    from = data + line * of.line_stride + at * of.depth_stride;
    step = by_depth ? kThreads / 4 * of.line_stride : kThreads / kQuads * of.depth_stride;
    stride = by_depth ? 1 : of.line_stride;
    // All threads read all four at once.
    whole = stride == 1 && (by_depth ? of.line_stride : of.depth_stride) % 4 == 0 &&
            reinterpret_cast<uintptr_t>(data) % alignof(Four<T>) == 0 && first + kTile <= lines;
  }
  // The next slice; `left`: what there is of the depth from its beginning on.
  __device__ __forceinline__ void fetch(int64_t left, int64_t depth_stride) {
    if (whole && left >= kDepth) {
#pragma unroll
      for (int time = 0; time < kTimes; ++time) {
        held[time] = *reinterpret_cast<const Four<T>*>(from + time * step);
      }
    } else {
#pragma unroll
      for (int time = 0; time < kTimes; ++time) {
        const int64_t l = line + (by_depth ? time * (kThreads / 4) : 0);
        const int d = at + (by_depth ? 0 : time * (kThreads / kQuads));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const bool inside = l + (by_depth ? 0 : i) < lines && d + (by_depth ? i : 0) < left;
          held[time].at[i] = inside ? from[time * step + i * stride] : T{};
        }
      }
    }
    from += kDepth * depth_stride;
  }
  template <class W, class Widen>
  __device__ __forceinline__ void store(W* slice, const Widen& widen) const {
    W* to = slice + place;
    if (by_depth) {
#pragma unroll
      for (int time = 0; time < kTimes; ++time) {
#pragma unroll
        for (int i = 0; i < 4; ++i) to[i * kRow + time * (kThreads / 4)] = widen(held[time].at[i]);
      }
    } else {
#pragma unroll
      for (int time = 0; time < kTimes; ++time) {
        const T(&v)[4] = held[time].at;
        *reinterpret_cast<Four<W>*>(to + time * (kThreads / kQuads) * kRow) = {
            widen(v[0]), widen(v[1]), widen(v[2]), widen(v[3])};
      }
    }
  }
};

// 16 x 16 threads, each with kTile / 16 rows and as many columns, four side by side; a warp has 4
// times 8 of them.
template <class T, class W, int kTile, class F>
static __global__ void __launch_bounds__(kThreads, sizeof(W) == 8 ? 1 : 2)
    multiply(const __grid_constant__ Problem p, const __grid_constant__ F finish) {
  constexpr int kEach = kTile / 16;
  __shared__ __align__(16) W left[2][kDepth][kTile + 4], right[2][kDepth][kTile + 4];
  const int64_t across = (p.columns + kTile - 1) / kTile;
  const int64_t row = blockIdx.x / across * kTile, column = blockIdx.x % across * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // Lanes beside each other have the same columns, and those two apart the same rows: then shared
  // memory serves 16 lanes that load 16 bytes at once, else 8.
  const int tx = warp % 2 * 8 + lane / 2 % 8, ty = warp / 2 * 4 + lane / 16 * 2 + lane % 2;

  for (int64_t matrix = blockIdx.y; matrix < p.matrices; matrix += gridDim.y) {
    Side<T, kTile> a(p.a, matrix, row, p.rows), b(p.b, matrix, column, p.columns);
    W sums[kEach][kEach] = {};
    const auto fetch = [&](int64_t left) {
      a.fetch(left, p.a.depth_stride), b.fetch(left, p.b.depth_stride);
    };
    const auto store = [&](int to) {
      a.store(&left[to][0][0], [&](T v) { return finish.left(v); });
      b.store(&right[to][0][0], [&](T v) { return finish.right(v); });
    };
    fetch(p.depth);
    store(0);
    __syncthreads();
    int now = 0;
    for (int64_t rest = p.depth; rest > 0; rest -= kDepth, now ^= 1) {
      if (rest > kDepth) fetch(rest - kDepth);
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        W x[kEach], y[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          x[i] = left[now][d][i / 4 * 64 + ty * 4 + i % 4];
          y[i] = right[now][d][i / 4 * 64 + tx * 4 + i % 4];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
#pragma unroll
          for (int j = 0; j < kEach; ++j) sums[i][j] = fma(x[i], y[j], sums[i][j]);
        }
      }
      // The other buffer was read before the last barrier.
      if (rest > kDepth) store(now ^ 1);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int64_t r = row + i / 4 * 64 + ty * 4 + i % 4;
        const int64_t c = column + j / 4 * 64 + tx * 4 + j % 4;
        if (r < p.rows && c < p.columns) finish(sums[i][j], r, c, matrix);
      }
    }
  }
}

// T: the operands' type; W: what sums, float or double. One launch.
template <class T, class W, class F>
cudaError_t launch(const Problem& p, const F& finish, cudaStream_t stream) {
  constexpr int kTile = sizeof(W) == 8 ? 64 : 128;
  const int64_t blocks = (p.rows + kTile - 1) / kTile * ((p.columns + kTile - 1) / kTile);
  if (blocks > INT32_MAX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(blocks),
                  static_cast<unsigned>(p.matrices < 65535 ? p.matrices : 65535));
  multiply<T, W, kTile><<<grid, kThreads, 0, stream>>>(p, finish);
  return cudaGetLastError();
}

}  // namespace kernforge::plain
