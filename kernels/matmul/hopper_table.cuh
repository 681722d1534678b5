// SPDX-License-Identifier: Apache-2.0
//
// Which kernel of kernforge/hopper_tiles.cuh a product gets: README.md has the figures.

#pragma once

#include "activation.cuh"
#include "hopper.h"
#include "kernforge/hopper_tiles.cuh"

namespace matmul::hopper {

using kernforge::hopper::Kind;
using kernforge::hopper::Major;
using kernforge::hopper::Second;
using kernforge::hopper::Shape;

inline kernforge::hopper::Given given_of(const Matmul& of) {
  const Extras& extras = of.extras;
  return {{of.a.data, of.a.row_stride, of.a.column_stride, of.a.matrix_stride},
          {of.b.data, of.b.column_stride, of.b.row_stride, of.b.matrix_stride},
          {of.c.data, of.c.row_stride, of.c.matrix_stride},
          {extras.residual.data, extras.residual.row_stride, extras.residual.matrix_stride},
          of.rows,
          of.columns,
          of.depth,
          of.matrices,
          {extras.bias, extras.scale_a, extras.scale_b, static_cast<int>(extras.scale_a_stride),
           static_cast<int>(extras.scale_b_stride)},
          {}};
}

template <class K>
cudaError_t launch_kind(const Matmul& of, cudaStream_t stream) {
  using kernforge::hopper::Epilogue;
  using A = Chosen<typename K::Out>;
  const auto given = given_of(of);
  return kernforge::hopper::with_shape(of.rows, of.columns, of.matrices, [&](auto shape) {
    using S = decltype(shape);
    const A activation{of.extras.activation};
    if (of.extras.residual.data != nullptr) {
      using E = Epilogue<A, false, Second::kResidual>;
      return kernforge::hopper::launch<K, S, E>(given, activation, stream);
    }
    if (of.extras.any()) {
      using E = Epilogue<A, false, Second::kNone>;
      return kernforge::hopper::launch<K, S, E>(given, activation, stream);
    }
    return kernforge::hopper::launch<K, S, kernforge::hopper::ProductAlone>(given, {}, stream);
  });
}

// 16-bit types: each operand as it lies.
template <class T>
cudaError_t launch_halves(const Matmul& of, cudaStream_t stream) {
  constexpr auto kDepth = Major::kDepth, kRows = Major::kRows;
  const auto aligned = [](int64_t stride) { return stride * sizeof(T) % 16 == 0; };
  const bool a = of.a.column_stride == 1 && of.a.row_stride >= of.depth && aligned(of.a.row_stride);
  const bool b =
      of.b.row_stride == 1 && of.b.column_stride >= of.depth && aligned(of.b.column_stride);
  if (a && b) return launch_kind<Kind<T, T, T, kDepth, kDepth>>(of, stream);
  if (a) return launch_kind<Kind<T, T, T, kDepth, kRows>>(of, stream);
  if (b) return launch_kind<Kind<T, T, T, kRows, kDepth>>(of, stream);
  return launch_kind<Kind<T, T, T, kRows, kRows>>(of, stream);
}

}  // namespace matmul::hopper
