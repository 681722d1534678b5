// SPDX-License-Identifier: Apache-2.0
//
// Which kernels compute what, and all but hopper_*.cu: routing, sorting, the plain products.

#include <algorithm>

#include "gradient.cuh"
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

// Of `Experts` or `Sort`.
template <class Of>
cudaError_t sort(const kernforge::Device& device, const Of& of, const sorting::Tables& tables,
                 int most, cudaStream_t stream) {
  const int count = static_cast<int>(of.tokens * of.top), experts = static_cast<int>(of.experts);
  const int chunks = static_cast<int>(parts(count, sorting::kChunk));
  const sorting::Assignments given{of.ids, count, static_cast<int>(of.top), experts, chunks};
  const auto launch = [&](auto kernel, int blocks, int threads, auto... more) {
    return kernforge::launch(device, stream, kernel, blocks, threads, given, tables, more...);
  };
  if (count <= sorting::kFew) {
    // At least 8 warps, each of which lays out the tiles of its experts.
    return launch(&sorting::sort_few, 1, std::max(256, (count + 31) / 32 * 32), most);
  }
  cudaError_t error = launch(&sorting::count, chunks, sorting::kChunk);
  if (!error) error = launch(&sorting::scan, 1, 1024, most);
  if (!error) error = launch(&sorting::place, chunks, sorting::kChunk);
  return error;
}

template <class T, class V>
cudaError_t plain_products(const kernforge::Device& device, const Experts& of,
                           const sorting::Tables& tables, void* tokens, void* inner,
                           cudaStream_t stream) {
  const int64_t tiles =
      of.tokens * of.top / plain::kTokens + std::min<int64_t>(of.tokens * of.top, of.experts);
  const auto run = [&](auto gated, const void* w, const float* factors, const void* from, void* to,
                       int64_t columns, int64_t depth) {
    const int64_t across = parts(columns, plain::kColumns);
    const int64_t blocks = std::min<int64_t>(tiles * across, 1 << 20);
    if (blocks == 0) return cudaSuccess;
    constexpr bool kGated = decltype(gated)::value;
    const plain::Weights<V> weights{static_cast<const V*>(w), kGated ? 2 * columns : columns, depth,
                                    factors};
    return kernforge::launch(device, stream, &plain::multiply<T, V, kGated>, blocks,
                             plain::kThreads, weights, static_cast<const T*>(from),
                             static_cast<T*>(to), kGated ? static_cast<T*>(of.both) : nullptr,
                             tables.tiles_in_all, tables.tiles, columns, depth);
  };
  const cudaError_t error =
      run(std::true_type{}, of.w1, of.w1_scale, tokens, inner, of.inner, of.width);
  if (error) return error;
  return run(std::false_type{}, of.w2, of.w2_scale, inner, tokens, of.width, of.inner);
}

}  // namespace

Scratch scratch_of(DType dtype, const Experts& of) {
  const int64_t assignments = of.tokens * of.top;
  const int64_t rows = rows_of(assignments, of.experts), size = size_of(dtype);
  const auto tables = sorting::tables_in(nullptr, assignments, of.experts,
                                         hopper::kMostFewTokens);  // the most tiles
  const auto whole = [](int64_t bytes) { return parts(bytes, 128) * 128; };
  return {whole(tables.bytes), whole(rows * of.width * size), rows * of.inner * size};
}

cudaError_t route_launch(DType dtype, const Route& of, cudaStream_t stream) {
  if (of.tokens == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  const int64_t blocks = parts(of.tokens, routing::kWarps);
  const int shared = of.groups > 1 ? routing::kWarps * of.experts * 4 : 0;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    const auto kernel = of.experts <= 128   ? &routing::route<T, 4>
                        : of.experts <= 256 ? &routing::route<T, 8>
                                            : &routing::route<T, 32>;
    return kernforge::launch_with_shared(device, stream, kernel, blocks, routing::kWarps * 32,
                                         shared, of);
  });
}

cudaError_t experts_launch(DType dtype, const Experts& of, void* memory, void* tokens, void* inner,
                           cudaStream_t stream) {
  if (of.tokens == 0 || of.width == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  const bool factors = of.w1_scale != nullptr;
  const int unit = factors ? 16 : 8;  // what a row has of 16 bytes
  const bool whole = aligned(of.x) && aligned(of.w1) && aligned(of.w2) && of.width % unit == 0 &&
                     of.inner % unit == 0 && of.inner > 0;
  const bool hopper = device.compute_capability == 90 && whole && size_of(dtype) == 2;
  const int most = !hopper           ? plain::kTokens
                   : factors         ? hopper::kMostScaledTokens
                   : hopper::few(of) ? hopper::kMostFewTokens
                                     : hopper::kMostTokens;
  auto tables = sorting::tables_in(memory, of.tokens * of.top, of.experts, most);
  if (of.both != nullptr) {
    tables.positions = of.positions;
    tables.assignments = of.assignments;
    tables.ends = of.ends;
  }
  if (const cudaError_t error = sort(device, of, tables, most, stream)) return error;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    const int top = static_cast<int>(of.top);
    constexpr int kThreads = sorting::kThreads, kMost = kernforge::kVectorLength<T>;
    const bool wide = aligned(of.x) && of.width % kMost == 0;
    const auto* x = static_cast<const T*>(of.x);
    auto* sorted = static_cast<T*>(tokens);
    auto* y = static_cast<T*>(of.y);
    const auto* weights = static_cast<const float*>(of.weights);
    cudaError_t error = cudaSuccess;
    if (!hopper || (!factors && hopper::copies_x(of))) {
      const auto spread = wide ? &sorting::spread<T, kMost> : &sorting::spread<T, 1>;
      error = kernforge::launch(device, stream, spread, of.tokens, kThreads, x, sorted,
                                tables.positions, top, of.width);
      if (error) return error;
    }
    if (!hopper) {
      const auto multiply =
          factors ? &plain_products<T, __nv_fp8_storage_t> : &plain_products<T, T>;
      error = multiply(device, of, tables, tokens, inner, stream);
    } else {
      const bool bfloat = dtype == DType::kBFloat16;
      const auto multiply =
          bfloat ? (factors ? &hopper::launch_scaled_bfloat16 : &hopper::launch_bfloat16)
                 : (factors ? &hopper::launch_scaled_float16 : &hopper::launch_float16);
      error = multiply(of, tables, tokens, inner, stream);
    }
    if (error) return error;
    const auto gather = wide ? &sorting::gather<T, kMost> : &sorting::gather<T, 1>;
    return kernforge::launch(device, stream, gather, of.tokens, kThreads, sorted, y,
                             tables.positions, weights, top, of.width);
  });
}

int64_t sort_scratch(const Sort& of) {
  return sorting::tables_in(nullptr, of.tokens * of.top, of.experts, hopper::kMostTokens).bytes;
}

cudaError_t sort_launch(const Sort& of, void* memory, cudaStream_t stream) {
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  auto tables = sorting::tables_in(memory, of.tokens * of.top, of.experts, hopper::kMostTokens);
  tables.positions = of.positions;
  tables.assignments = of.assignments;
  tables.ends = of.ends;
  return sort(device, of, tables, hopper::kMostTokens, stream);
}

cudaError_t spread_launch(DType dtype, const Spread& of, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kMost = kernforge::kVectorLength<T>;
    const bool wide = of.width % kMost == 0 && aligned(of.x) && aligned(of.grad);
    const auto kernel = wide ? &gradient::spread<T, kMost> : &gradient::spread<T, 1>;
    return kernforge::launch(device, stream, kernel, of.rows, gradient::kThreads, of);
  });
}

cudaError_t gate_backward_launch(DType dtype, const GateBackward& of, cudaStream_t stream) {
  if (of.rows == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kThreads = gradient::kThreads, kMost = kernforge::kVectorLength<T>;
    const bool wide = of.inner % kMost == 0 && aligned(of.both) && aligned(of.plain);
    const bool by_warp = of.inner <= gradient::kMostOfWarp;
    const auto kernel =
        by_warp
            ? (wide ? &gradient::gate_backward<T, kMost, 32> : &gradient::gate_backward<T, 1, 32>)
            : (wide ? &gradient::gate_backward<T, kMost, kThreads>
                    : &gradient::gate_backward<T, 1, kThreads>);
    const int64_t blocks = by_warp ? parts(of.rows, kThreads / 32) : of.rows;
    return kernforge::launch(device, stream, kernel, blocks, kThreads, of);
  });
}

cudaError_t sum_rows_launch(DType dtype, const SumRows& of, cudaStream_t stream) {
  if (of.tokens == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_type(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kMost = kernforge::kVectorLength<T>;
    const bool wide = of.width % kMost == 0 && aligned(of.rows);
    const auto kernel = wide ? &gradient::sum_rows<T, kMost> : &gradient::sum_rows<T, 1>;
    return kernforge::launch(device, stream, kernel, of.tokens, gradient::kThreads, of);
  });
}

}  // namespace moe
