// SPDX-License-Identifier: Apache-2.0
//
// How rows are cut, chosen by their width: all that was tuned.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernforge/pdl.cuh"
#include "rows.cuh"

namespace layer_norm {
namespace {

constexpr int64_t parts(int64_t all, int64_t part) { return (all + part - 1) / part; }

// Whether rows of `stride` elements of T can be read kLength at a time from there; nullptr can.
template <class T, int kLength>
bool in_vectors(const void* from, int64_t stride) {
  return reinterpret_cast<uintptr_t>(from) % (kLength * sizeof(T)) == 0 && stride % kLength == 0;
}

// Whether the code that runs there has the copy engine, which came with what pdl.cuh asks for.
inline bool copies(const kernforge::Device& device) {
  return device.programmatic_stream_serialization;
}

// Returns run(Cut<...>{}) for rows of so many vectors of 16 bytes, otherwise() where registers do
// not hold one.
template <class Run, class Otherwise>
auto forward_cut(int64_t vectors, const Run& run, const Otherwise& otherwise) {
  if (vectors <= 8) return run(Cut<4, 2, 32, 10>{});
  if (vectors <= 32) return run(Cut<16, 2, 8, 10>{});
  if (vectors <= 64) return run(Cut<32, 2, 4, 10>{});
  if (vectors <= 128) return run(Cut<32, 4, 4, 7>{});
  if (vectors <= 256) return run(Cut<64, 4, 1, 14>{});
  if (vectors <= 512) return run(Cut<128, 4, 1, 8>{});
  if (vectors <= 1024) return run(Cut<256, 4, 1, 4>{});
  if (vectors <= 2048) return run(Cut<512, 4, 1, 2>{});
  if (vectors <= 4096) return run(Cut<1024, 4, 1>{});
  if (vectors <= 8192) return run(Cut<1024, 8, 1>{});
  return otherwise();
}

// Returns run(lanes): how many threads a row of any width has, whose pieces are kLength elements.
// Many rows take few, so that more of them are read at a time; a few are done sooner by many. Rows
// of whole vectors are the cuts' but for double and the widest.
template <class T, int kLength, class Run>
auto with_lanes(int64_t rows, int64_t width, const Run& run) {
  if constexpr (kLength < kernforge::kVectorLength<T> || sizeof(T) == 8) {
    constexpr int64_t kPieces = kHeld / kLength;
    const int64_t pieces = parts(width, kLength);
    if (pieces <= 32) return run(std::integral_constant<int, 8>{});
    if (pieces <= 32 * kPieces * (rows >= 8192 ? 2 : 1) && rows >= 1024) {
      return run(std::integral_constant<int, 32>{});
    }
    const int64_t each = rows >= 1024 ? 4 * kPieces : rows >= 256 ? kPieces : 4;
    if (pieces <= 128 * each) return run(std::integral_constant<int, 128>{});
  }
  return run(std::integral_constant<int, 512>{});
}

// `forward_cut` for gradients, which keep two sums for each column: 16 columns a thread, 8 where
// each number has a register.
template <int kLength, class Run, class Otherwise>
auto gradient_cut(int64_t vectors, const Run& run, const Otherwise& otherwise) {
  constexpr int kVectors = kLength == 1 ? 8 : 16 / kLength;
  if (vectors <= 8) return run(Cut<8, 1, 32, 3>{});
  if (vectors <= 32) return run(Cut<32, 1, 8, 3>{});
  if (vectors <= 32 * kVectors) return run(Cut<32, kVectors, 8, 2>{});
  if (vectors <= 64 * kVectors) return run(Cut<64, kVectors, 4, 2>{});
  if (vectors <= 128 * kVectors) return run(Cut<128, kVectors, 2, 2>{});
  if (vectors <= 256 * kVectors) return run(Cut<256, kVectors, 1, 2>{});
  if (vectors <= 512 * kVectors) return run(Cut<512, kVectors, 1>{});
  if constexpr (kLength == 1) {
    if (vectors <= 8192) return run(Cut<512, 16, 1>{});
  }
  return otherwise();
}

// Blocks that leave parts of the gradients of weight and bias: no more than run at a time, and so
// many that all have the same number of rows, but for the last.
template <class C>
int64_t gradient_blocks(int64_t rows, const kernforge::Device& device) {
  const int64_t all = parts(rows, C::kRows);
  return parts(all, parts(all, int64_t{device.multiprocessors} * C::kBlocks));
}

// The same for `weight_gradient`: as many as run at a time, and 8 rows for each line.
inline int64_t column_blocks(int64_t rows, int64_t across, const kernforge::Device& device) {
  const int64_t fill = int64_t{device.multiprocessors} * 8 / across;
  return std::max<int64_t>(1, std::min(parts(rows, 64), fill));
}

}  // namespace
}  // namespace layer_norm
