// SPDX-License-Identifier: Apache-2.0
//
// Which tiles of hopper_tiles.cuh a product gets, and where they are not slower than cuBLAS. Plain
// C++: a binding or a launcher for any GPU can ask.

#pragma once

#include <cstdint>

namespace kernforge::hopper {

// Which tiles a product can get: rows of a cluster, columns, and the time of a wave of 132 blocks
// in percent of one of the last, which read the least for a product.
struct Tiling {
  int rows, columns, percent;
};
constexpr Tiling kTilings[] = {{128, 64, 36}, {128, 128, 60}, {256, 128, 54}, {256, 256, 100}};
constexpr int64_t kWave = 132;  // multiprocessors

// Of a product whose depth does not matter: waves, in percent of one of 128 x 256.
inline int64_t percent_of_wave(const Tiling& tiling, int64_t rows, int64_t columns,
                               int64_t matrices) {
  const auto parts = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  const int64_t clusters = parts(rows, tiling.rows) * parts(columns, tiling.columns) * matrices;
  return parts(clusters * (tiling.rows / 128), kWave) * tiling.percent;
}

// The index in kTilings of those that take the least time; of equal ones the largest.
inline int fastest_tiling(int64_t rows, int64_t columns, int64_t matrices) {
  int best = 0;
  for (int i = 1; i < 4; ++i) {
    if (percent_of_wave(kTilings[i], rows, columns, matrices) <=
        percent_of_wave(kTilings[best], rows, columns, matrices)) {
      best = i;
    }
  }
  return best;
}

// Whether tiles are not slower than cuBLAS, which is as fast as a wave that is full. `fused`: it is
// followed by a kernel that reads and writes the result once more, which takes as long as products
// 345 deep. Measured on an H200: 1,347 random sizes of bfloat16 and tf32, alone and with
// a residual; none was over 5 % slower, and shallower products are.
inline bool tiles_are_ahead(int64_t rows, int64_t columns, int64_t matrices, int64_t depth,
                            bool fused) {
  if (depth < (fused ? 128 : 512)) return false;
  const Tiling& tiling = kTilings[fastest_tiling(rows, columns, matrices)];
  const double waves = percent_of_wave(tiling, rows, columns, matrices) / 100.0;
  const double full = static_cast<double>(rows * columns * matrices) / (kWave * 128 * 256);
  return waves <= 1.05 * full * (fused ? 1 + 345.0 / depth : 1);
}

}  // namespace kernforge::hopper
