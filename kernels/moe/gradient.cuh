// SPDX-License-Identifier: Apache-2.0
//
// The gradient but for its products: rows of x and of the gradient by expert, SwiGLU's part between
// the products, and the sum of a token's rows. Nothing is added in an order that varies.

#pragma once

#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "moe.h"
#include "slopes.h"

namespace moe::gradient {

constexpr int kThreads = 256;
constexpr int kMostOfWarp = 2048;  // inner numbers of a row that one warp has

template <class T, int kLength>
using Vector = kernforge::AlignedVector<T, kLength>;

template <class T, int kLength>
__device__ __forceinline__ Vector<T, kLength> load(const void* from, int64_t i) {
  return *reinterpret_cast<const Vector<T, kLength>*>(static_cast<const T*>(from) + i);
}

template <class T, int kLength>
__device__ __forceinline__ void store(void* to, int64_t i, const Vector<T, kLength>& v) {
  *reinterpret_cast<Vector<T, kLength>*>(static_cast<T*>(to) + i) = v;
}

// One block a row.
template <class T, int kLength>
static __global__ void __launch_bounds__(kThreads) spread(const Spread of) {
  kernforge::grid_dependency_synchronize();
  const int64_t to = blockIdx.x * of.width;
  const int assignment = of.assignments[blockIdx.x];
  const int64_t from = assignment / static_cast<int>(of.top) * of.width;
  for (int64_t c = threadIdx.x * kLength; c < of.width; c += kThreads * kLength) {
    Vector<T, kLength> x{}, grad{};
    if (assignment >= 0) {
      x = load<T, kLength>(of.x, from + c);
      grad = load<T, kLength>(of.grad, from + c);
    }
    store(of.sorted_x, to + c, x);
    store(of.sorted_grad, to + c, grad);
  }
}

// kLanes threads a row: a warp or a block.
template <class T, int kLength, int kLanes>
static __global__ void __launch_bounds__(kThreads) gate_backward(const GateBackward of) {
  using W = kernforge::widened_t<T>;
  constexpr int kRows = kThreads / kLanes, kStep = kLanes * kLength;
  constexpr int kAtOnce = 2;  // vectors of each input that are on their way to a thread
  kernforge::grid_dependency_synchronize();
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * kRows + threadIdx.x / kLanes;
  if (row >= of.rows) return;  // a warp a row then, without a barrier
  const int assignment = of.assignments[row];
  const bool there = assignment >= 0;
  const W weight = there ? static_cast<const W*>(of.weights)[assignment] : W{0};
  const int64_t at = row * of.inner;
  W sum = 0;
  for (int64_t first = lane * kLength; first < of.inner; first += kAtOnce * kStep) {
    Vector<T, kLength> gate[kAtOnce], up[kAtOnce], plain[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t c = first + j * kStep;
      if (!there || c >= of.inner) continue;
      gate[j] = load<T, kLength>(of.both, 2 * at + c);
      up[j] = load<T, kLength>(of.both, 2 * at + of.inner + c);
      plain[j] = load<T, kLength>(of.plain, at + c);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t c = first + j * kStep;
      if (c >= of.inner) continue;
      Vector<T, kLength> dgate{}, dup{}, weighted{};
      if (there) {
#pragma unroll
        for (int i = 0; i < kLength; ++i) {
          const W z = kernforge::widen(gate[j].at[i]), d = kernforge::widen(plain[j].at[i]);
          W sigmoid;
          if constexpr (sizeof(T) == 2) {
            sigmoid = __fdividef(1.f, 1.f + __expf(-z));
          } else {
            sigmoid = 1 / (1 + expf(-z));
          }
          const Slopes<W> slopes = slopes_of<W>(z, kernforge::widen(up[j].at[i]), sigmoid);
          // Rounded, as the forward pass has it.
          const W value = kernforge::widen(kernforge::narrow<T>(slopes.value));
          sum = fma(d, value, sum);
          weighted.at[i] = kernforge::narrow<T>(weight * value);
          dgate.at[i] = kernforge::narrow<T>(d * weight * slopes.gate);
          dup.at[i] = kernforge::narrow<T>(d * weight * slopes.up);
        }
      }
      store(of.dboth, 2 * at + c, dgate);
      store(of.dboth, 2 * at + of.inner + c, dup);
      store(of.weighted, at + c, weighted);
    }
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
  if constexpr (kLanes > 32) {
    __shared__ W sums[kLanes / 32];
    if (lane % 32 == 0) sums[lane / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < kLanes / 32; ++i) sum += sums[i];
  }
  if (lane == 0) static_cast<W*>(of.dweights)[row] = sum;
}

// One block a token.
template <class T, int kLength>
static __global__ void __launch_bounds__(kThreads) sum_rows(const SumRows of) {
  using W = kernforge::widened_t<T>;
  constexpr int kAtOnce = 8;
  const int64_t token = blockIdx.x;
  const int top = static_cast<int>(of.top);
  kernforge::grid_dependency_synchronize();
  const int32_t* positions = of.positions + token * top;
  if (static_cast<int>(threadIdx.x) < top) {
    const int row = positions[threadIdx.x];
    static_cast<W*>(of.dweights)[token * top + threadIdx.x] =
        row >= 0 ? static_cast<const W*>(of.row_dweights)[row] : W{0};
  }
  for (int64_t c = threadIdx.x * kLength; c < of.width; c += kThreads * kLength) {
    W sums[kLength] = {};
    for (int first = 0; first < top; first += kAtOnce) {
      Vector<T, kLength> rows[kAtOnce];
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
        const int64_t row = first + j < top ? positions[first + j] : -1;
        rows[j] = {};
        if (row >= 0) rows[j] = load<T, kLength>(of.rows, row * of.width + c);
      }
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int i = 0; i < kLength; ++i) sums[i] += kernforge::widen(rows[j].at[i]);
      }
    }
    Vector<T, kLength> out;
#pragma unroll
    for (int i = 0; i < kLength; ++i) out.at[i] = kernforge::narrow<T>(sums[i]);
    store(of.y, token * of.width + c, out);
  }
}

}  // namespace moe::gradient
