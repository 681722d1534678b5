// SPDX-License-Identifier: Apache-2.0
//
// Which tile a product gets: README.md has the figures.

#pragma once

#include "hopper_launch.cuh"

namespace matmul::hopper {

// Tiles of 128 rows: the waves of them that 132 multiprocessors need, times what a wave takes in
// comparison with tiles of 256 columns, which read the least for a product.
template <class K>
cudaError_t launch_kind(const Matmul& of, cudaStream_t stream) {
  const auto run = [&](auto shape, const Order& order) {
    using S = decltype(shape);
    return of.extras.any() ? launch<K, S, Epilogue::kFull>(of, order, stream)
                           : launch<K, S, Epilogue::kNone>(of, order, stream);
  };
  const auto waves = [&](int64_t columns) {
    const int64_t tiles =
        (of.rows + 127) / 128 * ((of.columns + columns - 1) / columns) * of.matrices;
    return (tiles + 131) / 132;
  };
  const int64_t of_256 = waves(256) * 100, of_128 = waves(128) * 55, of_64 = waves(64) * 34;
  constexpr Order kOrder{8, true, 4};
  if (of_64 < of_128 && of_64 < of_256) return run(Shape<128, 64, 8, 1, 1>{}, kOrder);
  if (of_128 < of_256) {
    if (of.rows <= 128) return run(Shape<128, 128, 6, 1, 1>{}, kOrder);
    return run(Shape<128, 128, 6, 2, 1>{}, kOrder);
  }
  return run(Shape<128, 256, 4, 2, 1>{}, kOrder);
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
