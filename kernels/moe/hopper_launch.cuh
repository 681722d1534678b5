// SPDX-License-Identifier: Apache-2.0
//
// Starts hopper.cuh's kernel twice: tensor maps, as many blocks as there are multiprocessors.

#pragma once

#include <algorithm>

#include "hopper.cuh"
#include "hopper.h"

namespace moe::hopper {

// kKeep: gate and up go to `both`.
template <class T, class S, bool kGated, bool kGather, bool kKeep>
cudaError_t multiply(const kernforge::Device& device, const Matrix& weights, const Matrix& from,
                     const Matrix& to, void* both, const T* x, const sorting::Tables& tables,
                     int64_t most_tiles, const Problem& problem, cudaStream_t stream) {
  CUtensorMap of_weights, by_64, by_16, of_to;
  const auto encode = [](CUtensorMap* map, const Matrix& m, int rows) {
    return ptx::encode_map(map, ptx::kMapType<T>, 2, m.data, m.rows, m.columns, m.columns, rows);
  };
  if (!encode(&of_weights, weights, S::kHalf) || !encode(&by_64, from, 64) ||
      !encode(&by_16, from, 16) || !encode(&of_to, to, 8)) {
    return cudaErrorInvalidValue;
  }
  Kept<kKeep> kept;
  if constexpr (kKeep) {
    // Of the halves of a row each has a map, so that no store passes the end of the gate.
    const auto encode_half = [&](CUtensorMap* map, int64_t from) {
      return ptx::encode_map(map, ptx::kMapType<T>, 2, static_cast<T*>(both) + from, to.rows,
                             to.columns, 2 * to.columns, 8);
    };
    if (!encode_half(&kept.gate, 0) || !encode_half(&kept.up, to.columns)) {
      return cudaErrorInvalidValue;
    }
  }
  const int64_t blocks = std::min<int64_t>(most_tiles * problem.across, device.multiprocessors);
  return kernforge::launch_with_shared(device, stream, &grouped<T, S, kGated, kGather, kKeep>,
                                       blocks, S::kThreads, S::kShared, of_weights, by_64, by_16,
                                       of_to, kept, x, tables.sources, tables.tiles_in_all,
                                       tables.tiles, problem);
}

template <class T, class S>
cudaError_t launch_as(const Experts& of, const sorting::Tables& tables, void* tokens, void* inner,
                      cudaStream_t stream) {
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  const int64_t assignments = of.tokens * of.top;
  const int64_t rows = rows_of(assignments, of.experts);
  const int64_t most_tiles = sorting::most_tiles(assignments, of.experts, S::kTokens);
  const Matrix x{tokens, rows, of.width}, h{inner, rows, of.inner};
  const int width = static_cast<int>(of.width), half = static_cast<int>(of.inner);
  constexpr int kHalf = S::kHalf;
  const bool early = begins_early(of);
  const Problem up{width, (half + kHalf - 1) / kHalf, 2 * half, kHalf, half, early};
  const Problem down{half, (width + 2 * kHalf - 1) / (2 * kHalf), width, 2 * kHalf, kHalf, early};
  const Matrix w1{of.w1, of.experts * 2 * of.inner, of.width};
  const Matrix w2{of.w2, of.experts * of.width, of.inner};
  const auto first_of = [&](auto keep) {
    constexpr bool kKeep = decltype(keep)::value;
    return copies_x(of) ? &multiply<T, Many, true, false, kKeep>
                        : &multiply<T, S, true, true, kKeep>;
  };
  const auto first = of.both != nullptr ? first_of(std::true_type{}) : first_of(std::false_type{});
  const cudaError_t error =
      first(device, w1, x, h, of.both, static_cast<const T*>(of.x), tables, most_tiles, up, stream);
  if (error) return error;
  return multiply<T, S, false, false, false>(device, w2, h, x, nullptr, nullptr, tables, most_tiles,
                                             down, stream);
}

template <class T>
cudaError_t launch(const Experts& of, const sorting::Tables& tables, void* tokens, void* inner,
                   cudaStream_t stream) {
  return few(of) ? launch_as<T, Few>(of, tables, tokens, inner, stream)
                 : launch_as<T, Many>(of, tables, tokens, inner, stream);
}

}  // namespace moe::hopper
