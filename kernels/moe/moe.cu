// SPDX-License-Identifier: Apache-2.0
//
// Which kernels compute what, and all but hopper_*.cu: routing, sorting, the plain products.

#include <algorithm>

#include "hopper.h"
#include "plain.cuh"
#include "route.cuh"
#include "sort.cuh"

namespace moe {
namespace {

int64_t parts(int64_t all, int64_t part) { return (all + part - 1) / part; }

int64_t size_of(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

bool aligned(const void* address) { return reinterpret_cast<uintptr_t>(address) % 16 == 0; }

cudaError_t is_hopper(bool* is) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *is = major == 9 && minor == 0;
  return error;
}

// Of the types that CUDA computes.
template <class Run>
cudaError_t with_type(DType dtype, const Run& run) {
  return kernforge::dispatch(dtype, [&](auto element) {
    if constexpr (sizeof(element) == 8) {
      return cudaErrorNotSupported;
    } else {
      return run(element);
    }
  });
}

cudaError_t sort(const Experts& of, const sorting::Tables& tables, int most, cudaStream_t stream) {
  const int count = static_cast<int>(of.tokens * of.top), experts = static_cast<int>(of.experts);
  const int chunks = static_cast<int>(parts(count, sorting::kChunk));
  const sorting::Assignments given{of.ids, count, static_cast<int>(of.top), experts, chunks};
  if (count <= sorting::kFew) {
    // At least 8 warps, each of which lays out the tiles of its experts.
    const int threads = static_cast<int>(std::max<int64_t>(256, parts(count, 32) * 32));
    sorting::sort_few<<<1, threads, 0, stream>>>(given, tables, most);
  } else {
    sorting::count<<<chunks, sorting::kChunk, 0, stream>>>(given, tables);
    sorting::scan<<<1, 1024, 0, stream>>>(given, tables, most);
    sorting::place<<<chunks, sorting::kChunk, 0, stream>>>(given, tables);
  }
  return cudaGetLastError();
}

template <class T>
cudaError_t plain_products(const Experts& of, const sorting::Tables& tables, void* tokens,
                           void* inner, cudaStream_t stream) {
  const int64_t tiles =
      of.tokens * of.top / plain::kTokens + std::min<int64_t>(of.tokens * of.top, of.experts);
  const auto run = [&](auto gated, const void* w, const void* from, void* to, int64_t columns,
                       int64_t depth) {
    const int64_t across = parts(columns, plain::kColumns);
    const unsigned blocks = static_cast<unsigned>(std::min<int64_t>(tiles * across, 1 << 20));
    if (blocks == 0) return;
    plain::multiply<T, decltype(gated)::value><<<blocks, plain::kThreads, 0, stream>>>(
        static_cast<const T*>(w), static_cast<const T*>(from), static_cast<T*>(to),
        tables.tiles_in_all, tables.tiles, columns, depth);
  };
  run(std::true_type{}, of.w1, tokens, inner, of.inner, of.width);
  run(std::false_type{}, of.w2, inner, tokens, of.width, of.inner);
  return cudaGetLastError();
}

}  // namespace

Scratch scratch_of(DType dtype, const Experts& of) {
  const int64_t assignments = of.tokens * of.top;
  const int64_t rows = sorting::rows_of(assignments, of.experts), size = size_of(dtype);
  const auto tables = sorting::tables_in(nullptr, assignments, of.experts, plain::kTokens);
  return {tables.bytes, rows * of.width * size, rows * of.inner * size};
}

cudaError_t route_launch(DType dtype, const Route& of, cudaStream_t stream) {
  if (of.tokens == 0) return cudaSuccess;
  const unsigned blocks = static_cast<unsigned>(parts(of.tokens, routing::kWarps));
  const size_t shared = of.groups > 1 ? routing::kWarps * of.experts * sizeof(float) : 0;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kThreads = routing::kWarps * 32;
    if (of.experts <= 128) {
      routing::route<T, 4><<<blocks, kThreads, shared, stream>>>(of);
    } else if (of.experts <= 256) {
      routing::route<T, 8><<<blocks, kThreads, shared, stream>>>(of);
    } else {
      routing::route<T, 32><<<blocks, kThreads, shared, stream>>>(of);
    }
    return cudaGetLastError();
  });
}

cudaError_t experts_launch(DType dtype, const Experts& of, void* memory, void* tokens, void* inner,
                           cudaStream_t stream) {
  if (of.tokens == 0 || of.width == 0) return cudaSuccess;
  bool hopper = false;
  if (const cudaError_t error = is_hopper(&hopper)) return error;
  const bool whole = aligned(of.x) && aligned(of.w1) && aligned(of.w2) && of.width % 8 == 0 &&
                     of.inner % 8 == 0 && of.inner > 0;
  hopper = hopper && whole && size_of(dtype) == 2;
  const int most = hopper ? hopper::kMostTokens : plain::kTokens;
  const auto tables = sorting::tables_in(memory, of.tokens * of.top, of.experts, most);
  if (const cudaError_t error = sort(of, tables, most, stream)) return error;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    const int top = static_cast<int>(of.top);
    const unsigned blocks = static_cast<unsigned>(of.tokens);
    constexpr int kThreads = sorting::kThreads, kMost = kernforge::kVectorLength<T>;
    const bool wide = aligned(of.x) && of.width % kMost == 0;
    const auto* x = static_cast<const T*>(of.x);
    auto* sorted = static_cast<T*>(tokens);
    auto* y = static_cast<T*>(of.y);
    const auto* weights = static_cast<const float*>(of.weights);
    cudaError_t error = cudaSuccess;
    if (!hopper) {
      const auto spread = wide ? &sorting::spread<T, kMost> : &sorting::spread<T, 1>;
      spread<<<blocks, kThreads, 0, stream>>>(x, sorted, tables.positions, top, of.width);
      error = plain_products<T>(of, tables, tokens, inner, stream);
    } else if (dtype == DType::kBFloat16) {
      error = hopper::launch_bfloat16(of, tables, tokens, inner, stream);
    } else {
      error = hopper::launch_float16(of, tables, tokens, inner, stream);
    }
    if (error) return error;
    const auto gather = wide ? &sorting::gather<T, kMost> : &sorting::gather<T, 1>;
    gather<<<blocks, kThreads, 0, stream>>>(sorted, y, tables.positions, weights, top, of.width);
    return cudaGetLastError();
  });
}

}  // namespace moe
