// SPDX-License-Identifier: Apache-2.0
//
// The forward kernels. `of_rows` reads each row once: it stays in registers, so that the mean comes
// first and then the squares of what differs from it, exactly as written, at no cost in bandwidth.
// `of_any` takes what has no vectors, or rows that are too wide for registers: it reads a row twice
// and merges the moments of pieces as Chan, Golub and LeVeque do.

#pragma once

#include "kernforge/pdl.cuh"
#include "layer_norm.h"
#include "rows.cuh"

namespace layer_norm {

// kAdd: there is a residual, which takes registers.
template <class C, class T, bool kAdd>
static __global__ void __launch_bounds__(C::kThreads, kAdd ? (4 * C::kBlocks + 2) / 5 : C::kBlocks)
    of_rows(const Forward of) {
  constexpr int kLength = kernforge::kVectorLength<T>, kLanes = C::kLanes;
  using V = Vector<T>;
  __shared__ Shared<C, 3> shared;
  kernforge::grid_dependency_synchronize();
  const int lane = threadIdx.x % kLanes, vectors = static_cast<int>(of.width) / kLength;
  const float scale = 1.f / static_cast<float>(of.width), eps = static_cast<float>(of.eps);
  const auto* x = static_cast<const T*>(of.x);
  const auto* residual = static_cast<const T*>(of.residual);
  int64_t row = int64_t{blockIdx.x} * C::kRows + threadIdx.x / kLanes;

  V in[C::kVectors];
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) {
    const int at = i * kLanes + lane;
    in[i] = {};
    if (row < of.rows && at < vectors) in[i] = load_once(x + row * of.x_stride + at * kLength);
  }
  if constexpr (kAdd) {
    V more[C::kVectors];
#pragma unroll
    for (int i = 0; i < C::kVectors; ++i) {
      const int at = i * kLanes + lane;
      more[i] = {};
      if (row < of.rows && at < vectors) {
        more[i] = load_once(residual + row * of.residual_stride + at * kLength);
      }
    }
#pragma unroll
    for (int i = 0; i < C::kVectors; ++i) {
      const int at = i * kLanes + lane;
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        in[i].at[j] =
            kernforge::narrow<T>(kernforge::widen(in[i].at[j]) + kernforge::widen(more[i].at[j]));
      }
      if (row < of.rows && at < vectors) {
        store_once<T>(reinterpret_cast<V*>(static_cast<T*>(of.sum) + row * of.width) + at, in[i]);
      }
    }
  }
  const float numbers = numbers_of_warp<C, kLength>(lane, vectors);
  const RowMoments moments =
      moments_of_row<C, T>(in, lane, vectors, numbers, scale, of.rms, shared, 0);
  const float mean = moments.mean, inverse = rsqrtf(moments.squares * scale + eps);
  if (row >= of.rows) return;
  if (of.statistics != nullptr && lane == 0) {
    auto* statistics = static_cast<float*>(of.statistics);
    if (!of.rms) {
      statistics[row] = mean;
      statistics += of.rows;
    }
    statistics[row] = inverse;
  }
  const float shift = -mean * inverse;
  auto* y = static_cast<T*>(of.y) + row * of.width;
#pragma unroll
  for (int i = 0; i < C::kVectors; ++i) {
    const int at = i * kLanes + lane;
    if (at >= vectors) break;
    float weight[kLength], bias[kLength];
#pragma unroll
    for (int j = 0; j < kLength; ++j) weight[j] = 1, bias[j] = 0;
    if (of.weight != nullptr) load_weights<T>(weight, of.weight, at * kLength, of.float_weights);
    if (of.bias != nullptr) load_weights<T>(bias, of.bias, at * kLength, of.float_weights);
    V out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const float normal = fmaf(kernforge::widen(in[i].at[j]), inverse, shift);
      out.at[j] = kernforge::narrow<T>(fmaf(normal, weight[j], bias[j]));
    }
    store_once<T>(reinterpret_cast<V*>(y) + at, out);
  }
}

// Moments of some numbers: how many, their mean, and the sum of the squares of what differs from
// it.
template <class W>
struct Moments {
  W count, mean, squares;
};

template <class W>
__device__ __forceinline__ Moments<W> merged(const Moments<W>& a, const Moments<W>& b) {
  const W count = a.count + b.count, d = b.mean - a.mean;
  const W share = count > 0 ? b.count / count : 0;
  return {count, a.mean + d * share, a.squares + b.squares + d * d * a.count * share};
}

// A block a row, elements of a thread a block apart, vectors of kLength where that is not 1.
template <class T, int kLength>
static __global__ void __launch_bounds__(kAnyThreads) of_any(const Forward of) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kLength>;
  kernforge::grid_dependency_synchronize();
  __shared__ Moments<W> shared[kAnyThreads / 32];
  const auto* x = static_cast<const T*>(of.x) + blockIdx.x * of.x_stride;
  const auto* residual = static_cast<const T*>(of.residual) + blockIdx.x * of.residual_stride;
  auto* sum = static_cast<T*>(of.sum) + blockIdx.x * of.width;
  const auto load = [&](int64_t at) {
    V in = *reinterpret_cast<const V*>(x + at);
    if (of.residual != nullptr) {
      const V more = *reinterpret_cast<const V*>(residual + at);
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        in.at[j] = kernforge::narrow<T>(kernforge::widen(in.at[j]) + kernforge::widen(more.at[j]));
      }
    }
    return in;
  };
  Moments<W> moments = {};
  for (int64_t at = int64_t{threadIdx.x} * kLength; at < of.width; at += kAnyThreads * kLength) {
    const V in = load(at);
    if (of.sum != nullptr) *reinterpret_cast<V*>(sum + at) = in;
    Moments<W> piece = {kLength, 0, 0};
    if (!of.rms) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) piece.mean += kernforge::widen(in.at[j]);
      piece.mean /= kLength;
    }
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const W d = kernforge::widen(in.at[j]) - piece.mean;
      piece.squares += d * d;
    }
    moments = merged(moments, piece);
  }
  // Of RMSNorm all means are 0, and what is merged are sums of squares.
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    moments = merged(moments, {__shfl_down_sync(0xffffffff, moments.count, step),
                               __shfl_down_sync(0xffffffff, moments.mean, step),
                               __shfl_down_sync(0xffffffff, moments.squares, step)});
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = moments;
  __syncthreads();
  moments = shared[0];
  for (int i = 1; i < kAnyThreads / 32; ++i) moments = merged(moments, shared[i]);
  const W mean = moments.mean;
  const W inverse = 1 / sqrt(moments.squares / static_cast<W>(of.width) + static_cast<W>(of.eps));
  if (of.statistics != nullptr && threadIdx.x == 0) {
    auto* statistics = static_cast<W*>(of.statistics) + blockIdx.x;
    if (!of.rms) {
      *statistics = mean;
      statistics += of.rows;
    }
    *statistics = inverse;
  }
  auto* y = static_cast<T*>(of.y) + blockIdx.x * of.width;
  for (int64_t at = int64_t{threadIdx.x} * kLength; at < of.width; at += kAnyThreads * kLength) {
    const V in = load(at);
    V out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const W weight = weight_at<T>(of.weight, at + j, of.float_weights, 1);
      const W bias = weight_at<T>(of.bias, at + j, of.float_weights, 0);
      out.at[j] =
          kernforge::narrow<T>((kernforge::widen(in.at[j]) - mean) * inverse * weight + bias);
    }
    *reinterpret_cast<V*>(y + at) = out;
  }
}

}  // namespace layer_norm
