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

// Whether rows of `stride` elements of T can be read 16 bytes at a time from there; nullptr can.
template <class T>
bool in_vectors(const void* from, int64_t stride) {
  return reinterpret_cast<uintptr_t>(from) % kernforge::kVectorBytes == 0 &&
         stride % kernforge::kVectorLength<T> == 0;
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

// Returns run(lanes) for rows of so many pieces that a thread reads at a time: how many threads a
// row has where it is not cut. Few rows are done sooner by a block each.
template <class Run>
auto with_lanes(int64_t rows, int64_t pieces, const Run& run) {
  if (pieces <= 32) return run(std::integral_constant<int, 8>{});
  if (pieces <= 512 && rows >= 1024) return run(std::integral_constant<int, 32>{});
  return run(std::integral_constant<int, kAnyThreads>{});
}

// `forward_cut` for gradients, which keep two sums for each column: 16 columns a thread.
template <class T, class Run, class Otherwise>
auto gradient_cut(int64_t vectors, const Run& run, const Otherwise& otherwise) {
  constexpr int kVectors = 16 / kernforge::kVectorLength<T>;
  if (vectors <= 8) return run(Cut<8, 1, 32, 3>{});
  if (vectors <= 32) return run(Cut<32, 1, 8, 3>{});
  if (vectors <= 32 * kVectors) return run(Cut<32, kVectors, 8, 2>{});
  if (vectors <= 64 * kVectors) return run(Cut<64, kVectors, 4, 2>{});
  if (vectors <= 128 * kVectors) return run(Cut<128, kVectors, 2, 2>{});
  if (vectors <= 256 * kVectors) return run(Cut<256, kVectors, 1, 2>{});
  if (vectors <= 512 * kVectors) return run(Cut<512, kVectors, 1>{});
  return otherwise();
}

// Blocks that leave parts of the gradients of weight and bias: no more than run at a time, and so
// many that all have the same number of rows, but for the last.
template <class C>
int64_t gradient_blocks(int64_t rows, const kernforge::Device& device) {
  const int64_t all = parts(rows, C::kRows);
  return parts(all, parts(all, int64_t{device.multiprocessors} * C::kBlocks));
}

// The same for `weight_gradient`: enough for all multiprocessors, and 8 rows for each line.
inline int64_t column_blocks(int64_t rows, int64_t across, const kernforge::Device& device) {
  const int64_t fill = parts(int64_t{device.multiprocessors} * 8, across);
  return std::max<int64_t>(1, std::min(parts(rows, 64), fill));
}

}  // namespace
}  // namespace layer_norm
