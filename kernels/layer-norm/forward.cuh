// SPDX-License-Identifier: Apache-2.0
//
// The forward kernels. `of_rows` reads each row once: it stays in registers, so that the mean comes
// first and then the squares of what differs from it, exactly as written, at no cost in bandwidth.
// `of_any` takes what has no vectors, and rows that are too wide for registers, whose end it reads
// twice.

#pragma once

#include <type_traits>

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

// kLanes threads a row; elements of a thread are as many apart, in vectors of kLength where that is
// not 1.
template <class T, int kLength, int kLanes>
static __global__ void __launch_bounds__(Any<kLanes>::kThreads, kAnyBlocks<T, kLanes>)
    of_any(const Forward of) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kLength>;
  constexpr int kVectors = kHeld / kLength, kPiece = kLanes * kLength;
  kernforge::grid_dependency_synchronize();
  __shared__ W memory[3][Any<kLanes>::kWarps];
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * Any<kLanes>::kRows + threadIdx.x / kLanes;
  const int64_t width = row < of.rows ? of.width : 0;  // all threads of a warp form the sums
  const auto* x = static_cast<const T*>(of.x) + row * of.x_stride;
  const auto* residual = static_cast<const T*>(of.residual) + row * of.residual_stride;
  auto* sum = static_cast<T*>(of.sum) + row * of.width;
  auto* y = static_cast<T*>(of.y) + row * of.width;
  // Calls run(element, vector) for the vectors of the thread that are at `first` and behind it.
  const auto each = [&](int64_t first, auto& vectors, const auto& run) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(vectors) / sizeof(V)); ++i) {
      if (first + i * kPiece >= width) break;
      const int64_t at = first + i * kPiece + lane * kLength;
      if (at < width) run(at, vectors[i]);
    }
  };
  // All are asked for before the first is used.
  const auto load = [&](int64_t first, auto& to) {
    each(first, to, [&](int64_t at, V& v) { v = *reinterpret_cast<const V*>(x + at); });
    if (of.residual == nullptr) return;
    std::remove_reference_t<decltype(to)> more;
    each(first, more, [&](int64_t at, V& v) { v = *reinterpret_cast<const V*>(residual + at); });
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(more) / sizeof(V)); ++i) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const W a = kernforge::widen(to[i].at[j]), b = kernforge::widen(more[i].at[j]);
        to[i].at[j] = kernforge::narrow<T>(a + b);
      }
    }
  };
  V held[kVectors] = {};
  load(0, held);
  // Calls run(first, vectors) for what is held and then for the others, which it reads again.
  const auto all = [&](const auto& run) {
    run(0, held);
    constexpr int kBatch = kVectors > 1 ? kVectors / 2 : 1;
    for (int64_t first = kVectors * kPiece; first < width; first += kBatch * kPiece) {
      V others[kBatch] = {};
      load(first, others);
      run(first, others);
    }
  };
  // The mean of what is held, then of all numbers the sums of what differs from it and of the
  // squares: the others are read once for both, and those held are a share of the row, so that
  // little cancels.
  W near = 0, sums[2] = {0, 0};
  if (!of.rms) {
    each(0, held, [&](int64_t, const V& in) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) near += kernforge::widen(in.at[j]);
    });
    constexpr int64_t kMost = kVectors * kPiece;
    near =
        sum_of_any<kLanes>(near, memory[0]) / static_cast<W>(of.width < kMost ? of.width : kMost);
  }
  all([&](int64_t first, auto& vectors) {
    each(first, vectors, [&](int64_t at, const V& in) {
      if (of.sum != nullptr) *reinterpret_cast<V*>(sum + at) = in;
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const W d = kernforge::widen(in.at[j]) - near;
        sums[0] += d, sums[1] += d * d;
      }
    });
  });
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    sums[s] = sum_of_any<kLanes>(sums[s], memory[1 + s]) / static_cast<W>(of.width);
  }
  const W more = of.rms ? 0 : sums[0];
  const W mean = near + more;
  W variance = sums[1] - more * more;
  if (variance < 0) variance = 0;  // NaN stays
  const W inverse = 1 / sqrt(variance + static_cast<W>(of.eps));
  if (of.statistics != nullptr && lane == 0 && row < of.rows) {
    auto* statistics = static_cast<W*>(of.statistics) + row;
    if (!of.rms) {
      *statistics = mean;
      statistics += of.rows;
    }
    *statistics = inverse;
  }
  all([&](int64_t first, auto& vectors) {
    each(first, vectors, [&](int64_t at, V& v) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const W weight = weight_at<T>(of.weight, at + j, of.float_weights, 1);
        const W bias = weight_at<T>(of.bias, at + j, of.float_weights, 0);
        const W n = (kernforge::widen(v.at[j]) - mean) * inverse;
        v.at[j] = kernforge::narrow<T>(n * weight + bias);
      }
    });
    // Stores come last: the compiler asks for no weight before a store that is ahead of it.
    each(first, vectors, [&](int64_t at, const V& v) { *reinterpret_cast<V*>(y + at) = v; });
  });
}

}  // namespace layer_norm
