// SPDX-License-Identifier: Apache-2.0
//
// What follows a product of torch: scales, bias, activation and residual in one pass.

#pragma once

#include <cstdint>

#include "activation.cuh"
#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "matmul.h"

namespace matmul {

// A thread has kVector numbers of a row that lie side by side everywhere, by default one. In: the
// product's type.
template <class In, class Out, int kVector>
static __global__ void __launch_bounds__(256) finish(const Matmul of, const In* product) {
  using W = kernforge::widened_t<Out>;
  using V = kernforge::AlignedVector<Out, kVector>;
  kernforge::grid_dependency_synchronize();
  const int64_t across = of.columns / kVector;
  const int64_t at = int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (at >= of.matrices * of.rows * across) return;
  const int64_t line = at / across, column = (at - line * across) * kVector;
  const int64_t matrix = of.matrices == 1 ? 0 : line / of.rows, row = line - matrix * of.rows;
  const auto place = [&](const Matrices& m) {
    return matrix * m.matrix_stride + row * m.row_stride + column * m.column_stride;
  };
  const auto vector = [](const void* from, int64_t i) {
    return *reinterpret_cast<const V*>(static_cast<const Out*>(from) + i);
  };
  const Extras& extras = of.extras;
  W v[kVector];
  const auto in = *reinterpret_cast<const kernforge::AlignedVector<In, kVector>*>(
      product + line * of.columns + column);
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = kernforge::widen(in.at[i]);
  if (extras.scale_a != nullptr) {  // and of b, of fp8
    const W scale = extras.scale_a[row * extras.scale_a_stride];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      v[i] = v[i] * extras.scale_b[(column + i) * extras.scale_b_stride] * scale;
    }
  }
  if (extras.bias != nullptr) {
    const V bias = vector(extras.bias, column);
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] += kernforge::widen(bias.at[i]);
  }
  if constexpr (sizeof(Out) == 2) {
    const Chosen<Out> activation{extras.activation};
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] *= activation.scale();
    activation.template apply<kVector>(v);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] = activated(extras.activation, v[i]);
  }
  if (extras.residual.data != nullptr) {
    const V residual = vector(extras.residual.data, place(extras.residual));
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] += kernforge::widen(residual.at[i]);
  }
  V out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) out.at[i] = kernforge::narrow<Out>(v[i]);
  *reinterpret_cast<V*>(static_cast<Out*>(const_cast<void*>(of.c.data)) + place(of.c)) = out;
}

}  // namespace matmul
