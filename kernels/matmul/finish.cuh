// SPDX-License-Identifier: Apache-2.0
//
// What follows a product of torch: scales, bias, activation and residual in one pass.

#pragma once

#include <cstdint>
#include <type_traits>

#include "activation.cuh"
#include "kernforge/dtype.cuh"
#include "kernforge/elementwise.cuh"
#include "kernforge/pdl.cuh"
#include "matmul.h"

namespace matmul {

struct Finish {
  Matmul of;
  const void* product;
  kernforge::Divisor columns;
};

// A thread has kVector numbers of the product that lie side by side, by default one. In: its type.
// kFlat: the result and a residual have no gaps either, and there are no scales, so that a vector
// may have the end of one row and the start of the next.
template <class In, class Out, int kVector, bool kFlat>
static __global__ void __launch_bounds__(256) finish(const Finish given) {
  using W = kernforge::widened_t<Out>;
  using V = kernforge::AlignedVector<Out, kVector>;
  kernforge::grid_dependency_synchronize();
  const Matmul& of = given.of;
  const Extras& extras = of.extras;
  const int64_t items = of.matrices * of.rows * of.columns;
  const int64_t first = (int64_t{blockIdx.x} * 256 + threadIdx.x) * kVector;
  if (first >= items) return;
  const int64_t line =
      first < INT32_MAX ? given.columns.divide(static_cast<uint32_t>(first)) : first / of.columns;
  const int64_t column = first - line * of.columns;
  const int64_t matrix = of.matrices == 1 ? 0 : line / of.rows, row = line - matrix * of.rows;
  const auto place = [&](const Matrices& m) {
    return kFlat ? first : matrix * m.matrix_stride + row * m.row_stride + column * m.column_stride;
  };
  const bool whole = !kFlat || first + kVector <= items;  // else the last
  const auto read = [&](const auto* from) {
    kernforge::AlignedVector<std::decay_t<decltype(*from)>, kVector> v;
    if (whole) return *reinterpret_cast<const decltype(v)*>(from);
    for (int i = 0; i < items - first; ++i) v.at[i] = from[i];
    return v;
  };
  W v[kVector];
  const auto in = read(static_cast<const In*>(given.product) + first);
#pragma unroll
  for (int i = 0; i < kVector; ++i) v[i] = kernforge::widen(in.at[i]);
  if (!kFlat && extras.scale_a != nullptr) {  // and of b, of fp8
    const W scale = extras.scale_a[row * extras.scale_a_stride];
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      v[i] = v[i] * extras.scale_b[(column + i) * extras.scale_b_stride] * scale;
    }
  }
  if (extras.bias != nullptr) {
    const auto* bias = static_cast<const Out*>(extras.bias);
    if constexpr (kFlat) {
      int64_t at = column;
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        v[i] += kernforge::widen(bias[at]);
        if (++at == of.columns) at = 0;
      }
    } else {
      const V added = *reinterpret_cast<const V*>(bias + column);
#pragma unroll
      for (int i = 0; i < kVector; ++i) v[i] += kernforge::widen(added.at[i]);
    }
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
    const auto* residual = static_cast<const Out*>(extras.residual.data);
    const auto added = read(residual + place(extras.residual));
#pragma unroll
    for (int i = 0; i < kVector; ++i) v[i] += kernforge::widen(added.at[i]);
  }
  V out;
#pragma unroll
  for (int i = 0; i < kVector; ++i) out.at[i] = kernforge::narrow<Out>(v[i]);
  auto* c = static_cast<Out*>(const_cast<void*>(of.c.data)) + place(of.c);
  if (whole) {
    *reinterpret_cast<V*>(c) = out;
  } else {
    for (int i = 0; i < items - first; ++i) c[i] = out.at[i];
  }
}

}  // namespace matmul
