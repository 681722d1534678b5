// SPDX-License-Identifier: Apache-2.0
//
// Starts hopper.cuh's kernel twice: tensor maps, as many blocks as there are multiprocessors.

#pragma once

#include <atomic>

#include "hopper.cuh"
#include "hopper.h"

namespace moe::hopper {

static_assert(kTokens == kMostTokens);

// Of the current device; 0: not asked yet.
inline cudaError_t multiprocessors(int* count) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  *count = device < kDevices ? known[device].load(std::memory_order_relaxed) : 0;
  if (*count != 0) return cudaSuccess;
  const cudaError_t error = cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
  if (!error && device < kDevices) known[device].store(*count, std::memory_order_relaxed);
  return error;
}

// A matrix [rows, columns] without gaps.
struct Matrix {
  const void* data;
  int64_t rows, columns;
};

template <class T, bool kGated>
cudaError_t multiply(const Matrix& weights, const Matrix& from, const Matrix& to, const T* x,
                     const sorting::Tables& tables, int64_t most_tiles, const Problem& problem,
                     cudaStream_t stream) {
  CUtensorMap of_weights, by_64, by_16, of_to;
  const auto encode = [](CUtensorMap* map, const Matrix& m, int rows) {
    return ptx::encode_map(map, ptx::kMapType<T>, 2, m.data, m.rows, m.columns, m.columns, rows);
  };
  if (!encode(&of_weights, weights, 128) || !encode(&by_64, from, 64) ||
      !encode(&by_16, from, 16) || !encode(&of_to, to, 8)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = &grouped<T, kGated>;
  int most = 0;
  cudaError_t error = multiprocessors(&most);
  if (!error) {
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  }
  if (error) return error;
  const int64_t blocks = most_tiles * problem.across;
  kernel<<<static_cast<unsigned>(blocks < most ? blocks : most), 384, kShared, stream>>>(
      of_weights, by_64, by_16, of_to, x, tables.sources, tables.tiles_in_all, tables.tiles,
      problem);
  return cudaGetLastError();
}

template <class T>
cudaError_t launch(const Experts& of, const sorting::Tables& tables, void* tokens, void* inner,
                   cudaStream_t stream) {
  const int64_t assignments = of.tokens * of.top;
  const int64_t rows = sorting::rows_of(assignments, of.experts);
  const int64_t most_tiles =
      assignments / kTokens + (assignments < of.experts ? assignments : of.experts);
  const Matrix x{tokens, rows, of.width}, h{inner, rows, of.inner};
  const int width = static_cast<int>(of.width), half = static_cast<int>(of.inner);
  const Problem up{width, (half + 127) / 128, 2 * half, 128, half};
  const Problem down{half, (width + 255) / 256, width, 256, 128};
  const Matrix w1{of.w1, of.experts * 2 * of.inner, of.width};
  const Matrix w2{of.w2, of.experts * of.width, of.inner};
  const cudaError_t error =
      multiply<T, true>(w1, x, h, static_cast<const T*>(of.x), tables, most_tiles, up, stream);
  if (error) return error;
  return multiply<T, false>(w2, h, x, nullptr, tables, most_tiles, down, stream);
}

}  // namespace moe::hopper
