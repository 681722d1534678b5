// SPDX-License-Identifier: Apache-2.0
//
// Sorted rows with the indices of their elements: what the launchers, the CPU path and the binding
// share. No torch header.

#pragma once

#include <cstddef>
#include <cstdint>

#include "keys.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace bitonic_sort {

// Rows [rows, length] without gaps, and what becomes of them: the first `keep` of each row in
// order, equal ones in the order of their indices. `source`, if there is one, has [rows, length]
// numbers that are written instead of the indices.
struct Rows {
  const void* x;
  void* values;
  int64_t *indices, *source;
  int64_t rows, length, keep;
};

void sort_cpu(const Order& order, const Rows& of, int64_t begin, int64_t end);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

// Longer rows are not one block's.
constexpr int64_t kLongest = 16384;

// Of up to kLongest elements where `chunks` is 1. Else each row is so many parts, sorted apart:
// part c begins at c * length / chunks, and the results are [rows * chunks, keep]. `scratch` is
// scratch_for(order, of, chunks) bytes. On the current device, asynchronously on the stream.
cudaError_t rows_launch(const Order& order, const Rows& of, int64_t chunks, void* scratch,
                        cudaStream_t stream);
int64_t scratch_for(const Order& order, const Rows& of, int64_t chunks);

// Of any length below 2^32, by radix sort: keep == length and no source. `scratch` is
// radix_scratch(order, of) bytes.
cudaError_t radix_launch(const Order& order, const Rows& of, void* scratch, cudaStream_t stream);
int64_t radix_scratch(const Order& order, const Rows& of);

#endif

}  // namespace bitonic_sort
