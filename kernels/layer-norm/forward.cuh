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

// What `of_rows` takes: division and conversion of doubles are the host's.
struct Rows {
  Forward of;
  float scale, eps;  // 1 / width
};

// Blocks for one multiprocessor: a residual takes registers, and moments of floats a few.
template <class C, class T, bool kAdd>
constexpr int kForwardBlocks = kAdd             ? (4 * C::kBlocks + 2) / 5
                               : sizeof(T) == 4 ? C::kBlocks - (C::kBlocks + 4) / 8
                                                : C::kBlocks;

// kAdd: there is a residual.
template <class C, class T, bool kAdd>
static __global__ void __launch_bounds__(C::kThreads, kForwardBlocks<C, T, kAdd>)
    of_rows(const Rows given) {
  constexpr int kLength = kernforge::kVectorLength<T>, kLanes = C::kLanes, kVectors = C::kVectors;
  using V = Vector<T>;
  __shared__ Shared<C, 3> shared;
  kernforge::grid_dependency_synchronize();
  const Forward& of = given.of;
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * C::kRows + (C::kRows > 1 ? threadIdx.x / kLanes : 0);
  // Vectors of the row from the thread's first one on: `i` is there if i * kLanes < left.
  const int left = row < of.rows ? static_cast<int>(of.width) / kLength - lane : 0;
  const auto* x = reinterpret_cast<const V*>(static_cast<const T*>(of.x) + row * of.x_stride);
  const auto* weights = static_cast<const V*>(of.weight) + lane;
  const auto* biases = static_cast<const V*>(of.bias) + lane;

  V in[kVectors];
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    in[i] = {};
    if (i * kLanes < left) in[i] = (x + lane)[i * kLanes];
  }
  V more[kAdd ? kVectors : 1];
  if constexpr (kAdd) {
    const auto* residual =
        reinterpret_cast<const V*>(static_cast<const T*>(of.residual) + row * of.residual_stride);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      more[i] = {};
      if (i * kLanes < left) more[i] = (residual + lane)[i * kLanes];
    }
  }
  // Where registers hold them, weights of the type are asked for now: after the barrier is late.
  constexpr int kRegisters = 65536 / (C::kThreads * kForwardBlocks<C, T, kAdd>);
  constexpr bool kAhead = kVectors <= 4 && kRegisters >= (kAdd ? 16 : 12) * kVectors + 16;
  const bool own = of.weight != nullptr && (sizeof(T) == 4 || !of.float_weights);
  V weight[kVectors], bias[kVectors];
  if (kAhead && own) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      weight[i] = bias[i] = {};
      if (i * kLanes >= left) continue;
      weight[i] = weights[i * kLanes];
      if (of.bias != nullptr) bias[i] = biases[i * kLanes];
    }
  }
  if constexpr (kAdd) {
    auto* sum = reinterpret_cast<V*>(static_cast<T*>(of.sum) + row * of.width) + lane;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float a[kLength], b[kLength];
      unpack<T>(a, in[i]), unpack<T>(b, more[i]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) a[j] += b[j];
      in[i] = pack<T>(a);
      if (i * kLanes < left) sum[i * kLanes] = in[i];
    }
  }
  const RowMoments moments = moments_of_row<C, T>(in, left, given.scale, of.rms, shared);
  stay_packed<T>(in);
  if constexpr (kAhead) stay_packed<T>(weight), stay_packed<T>(bias);
  const float mean = moments.mean, inverse = rsqrtf(moments.variance + given.eps);
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
  auto* y = reinterpret_cast<V*>(static_cast<T*>(of.y) + row * of.width) + lane;
  const auto finish = [&](const auto& scaled) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      if (i * kLanes >= left) break;
      float numbers[kLength];
      unpack<T>(numbers, in[i]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) numbers[j] = fmaf(numbers[j], inverse, shift);
      scaled(numbers, i);
      y[i * kLanes] = pack<T>(numbers);
    }
  };
  if (own && of.bias != nullptr) {
    finish([&](float (&n)[kLength], int i) {
      float w[kLength], b[kLength];
      unpack<T>(w, kAhead ? weight[i] : weights[i * kLanes]);
      unpack<T>(b, kAhead ? bias[i] : biases[i * kLanes]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) n[j] = fmaf(n[j], w[j], b[j]);
    });
  } else if (own) {
    finish([&](float (&n)[kLength], int i) {
      float w[kLength];
      unpack<T>(w, kAhead ? weight[i] : weights[i * kLanes]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) n[j] *= w[j];
    });
  } else {
    finish([&](float (&n)[kLength], int i) {
      const int at = (i * kLanes + lane) * kLength;
      float w[kLength], b[kLength];
#pragma unroll
      for (int j = 0; j < kLength; ++j) w[j] = 1, b[j] = 0;
      if (of.weight != nullptr) load_weights<T>(w, of.weight, at, of.float_weights);
      if (of.bias != nullptr) load_weights<T>(b, of.bias, at, of.float_weights);
#pragma unroll
      for (int j = 0; j < kLength; ++j) n[j] = fmaf(n[j], w[j], b[j]);
    });
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

// kLanes threads a row, a part of a warp or all of the block; elements of a thread are as many
// apart, in vectors of kLength where that is not 1.
template <class T, int kLength, int kLanes>
static __global__ void __launch_bounds__(kAnyThreads) of_any(const Forward of) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kLength>;
  constexpr int kOfWarp = kLanes < 32 ? kLanes : 32;
  kernforge::grid_dependency_synchronize();
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * (kAnyThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= of.rows) return;
  const auto* x = static_cast<const T*>(of.x) + row * of.x_stride;
  const auto* residual = static_cast<const T*>(of.residual) + row * of.residual_stride;
  auto* sum = static_cast<T*>(of.sum) + row * of.width;
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
  for (int64_t at = int64_t{lane} * kLength; at < of.width; at += kLanes * kLength) {
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
  for (int step = kOfWarp / 2; step > 0; step /= 2) {
    moments = merged(moments, {__shfl_down_sync(0xffffffff, moments.count, step, kOfWarp),
                               __shfl_down_sync(0xffffffff, moments.mean, step, kOfWarp),
                               __shfl_down_sync(0xffffffff, moments.squares, step, kOfWarp)});
  }
  if constexpr (kLanes <= 32) {
    moments = {__shfl_sync(0xffffffff, moments.count, 0, kOfWarp),
               __shfl_sync(0xffffffff, moments.mean, 0, kOfWarp),
               __shfl_sync(0xffffffff, moments.squares, 0, kOfWarp)};
  } else {
    __shared__ Moments<W> shared[kLanes / 32];
    if (lane % 32 == 0) shared[lane / 32] = moments;
    __syncthreads();
    moments = shared[0];
    for (int i = 1; i < kLanes / 32; ++i) moments = merged(moments, shared[i]);
  }
  const W mean = moments.mean;
  const W inverse = 1 / sqrt(moments.squares / static_cast<W>(of.width) + static_cast<W>(of.eps));
  if (of.statistics != nullptr && lane == 0) {
    auto* statistics = static_cast<W*>(of.statistics) + row;
    if (!of.rms) {
      *statistics = mean;
      statistics += of.rows;
    }
    *statistics = inverse;
  }
  auto* y = static_cast<T*>(of.y) + row * of.width;
  for (int64_t at = int64_t{lane} * kLength; at < of.width; at += kLanes * kLength) {
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
