// SPDX-License-Identifier: Apache-2.0
//
// Volumes of small integers to floats on NVIDIA GPUs; formulas in normalize_volume.h.
//
// Bound by memory. Scaling reads a volume once and writes its result once: a thread takes one pack
// of 16 bytes of the result. The moments read it once: each thread sums what it sees in registers,
// blocks add theirs to one place, and the last block of a volume makes its mean and deviation of
// it. Sums are integers, so the order in which blocks come does not show.
//
// Large volumes are scaled from their end, of which the L2 cache still has what the moments read
// last.
//
// Where launches are what takes time: a volume of up to Policy::kSmall voxels is one block's, which
// sums and then scales it, from registers where one vector a thread is all of it. Up to
// Policy::kMiddle in all, blocks leave their sums side by side, and every block that scales adds
// them up for itself: no place has to be made 0 before, and none is waited for.

#include <cstring>
#include <type_traits>

#include "kernforge/pdl.cuh"
#include "normalize_volume.h"
#include "policy.cuh"
#include "scaling.cuh"
#include "sums.cuh"

namespace normalize_volume {
namespace {

using kernforge::Device;
using kernforge::launch;

constexpr int kThreads = Policy::kBlockThreads;
constexpr int kSmallThreads = Policy::kSmallBlockThreads;

}  // namespace

// -- kernels; pdl.cuh says why their names are short ---

// All volumes scaled alike are one.
template <class P, class V, class Y, int kWidth>
static __global__ void __launch_bounds__(P::kBlockThreads)
    scale_kernel(const V* v, Y* __restrict__ y, const Scaling by, const Limits limits, int64_t n) {
  kernforge::grid_dependency_synchronize();
  scale_packs<P, Y, kWidth, false>(v, y, by, limits, blockIdx.x, n);
}

// Each volume by its own scaling, `each` blocks of it, from the last to the first.
template <class P, class V, class Y, int kWidth>
static __global__ void __launch_bounds__(P::kBlockThreads)
    scale_each_kernel(const V* v, Y* __restrict__ y, const Workspace* workspaces, unsigned each,
                      int64_t n) {
  kernforge::grid_dependency_synchronize();
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const unsigned volume = gridDim.x == each ? 0 : block / each;
  const Limits none = {-INFINITY, INFINITY};
  scale_packs<P, Y, kWidth, true>(v + volume * n, y + volume * n, workspaces[volume].scaling, none,
                                  block - volume * each, n);
}

// -- moments ---

// `each` blocks sum one volume; whichever is the last to add its part makes the moments.
template <class V>
static __global__ void __launch_bounds__(kThreads)
    moments_kernel(const V* v, Moments* __restrict__ moments, Workspace* workspaces, unsigned each,
                   Count count) {
  kernforge::grid_dependency_synchronize();
  const int64_t n = count.n;
  const unsigned volume = blockIdx.x / each;
  const int64_t rank = int64_t{blockIdx.x - volume * each} * kThreads + threadIdx.x;
  const Sums part = block_sum(sums_of(v + volume * n, n, rank, int64_t{each} * kThreads));
  if (threadIdx.x != 0) return;
  Workspace& of = workspaces[volume];
  auto* first = reinterpret_cast<unsigned long long*>(&of.sums.first);
  auto* second = reinterpret_cast<unsigned long long*>(&of.sums.second);
  atomicAdd(first, static_cast<unsigned long long>(part.first));
  atomicAdd(second, static_cast<unsigned long long>(part.second));
  __threadfence();
  if (atomicAdd(&of.done, 1u) != each - 1) return;
  __threadfence();
  const Sums sums = {atomicAdd(first, 0ull), atomicAdd(second, 0ull)};
  Moments made;
  of.scaling = finish(sums, count, kBias<V>, &made);
  if (moments != nullptr) moments[volume] = made;
}

// `each` blocks sum one volume and leave what they have in workspaces of their own.
template <class V>
static __global__ void __launch_bounds__(kThreads)
    parts_kernel(const V* v, Workspace* workspaces, unsigned each, int64_t n) {
  kernforge::grid_dependency_synchronize();
  const unsigned volume = blockIdx.x / each;
  const int64_t rank = int64_t{blockIdx.x - volume * each} * kThreads + threadIdx.x;
  const Sums part = block_sum(sums_of(v + volume * n, n, rank, int64_t{each} * kThreads));
  if (threadIdx.x == 0) workspaces[blockIdx.x].sums = part;
}

// Each volume by the sum of its `parts`, of which a thread adds at most one; `each` blocks of it.
template <class V, class Y, int kWidth>
static __global__ void __launch_bounds__(kThreads)
    scale_parts_kernel(const V* v, Y* __restrict__ y, const Workspace* workspaces, unsigned parts,
                       unsigned each, Count count) {
  __shared__ Scaling by;
  kernforge::grid_dependency_synchronize();
  const int64_t n = count.n;
  const unsigned volume = blockIdx.x / each;
  const int64_t pack = int64_t{blockIdx.x - volume * each} * kThreads + threadIdx.x;
  Sums sums = {0, 0};
  if (threadIdx.x < parts) sums = workspaces[volume * parts + threadIdx.x].sums;
  sums = block_sum(sums);
  if (threadIdx.x == 0) {
    Moments moments;
    by = finish(sums, count, kBias<V>, &moments);
  }
  __syncthreads();
  const Limits none = {-INFINITY, INFINITY};
  scale_pack<Y, kWidth>(v + volume * n, y + volume * n, by, none, pack, n);
}

// A block sums a volume of whole packs, one a thread, and scales what it has of it in registers.
template <class V, class Y>
static __global__ void __launch_bounds__(kSmallThreads)
    kept_kernel(const V* v, Y* __restrict__ y, Count count) {
  constexpr int kRead = 16 / sizeof(V), kWidth = 16 / sizeof(Y);
  kernforge::grid_dependency_synchronize();
  const auto n = static_cast<unsigned>(count.n);
  const unsigned at = threadIdx.x * kRead;
  v += blockIdx.x * count.n + at;
  y += blockIdx.x * count.n + at;
  AlignedVector<AlignedVector<V, kWidth>, kRead / kWidth> in;
  Sums sums = {0, 0};
  if (at < n) {
    const auto words = *reinterpret_cast<const uint4*>(v);
    memcpy(&in, &words, sizeof(in));
    add_pack<V>(sums, words);
  }
  sums = block_sum<true>(sums);
  if (at >= n) return;
  Moments made;
  const Scaling by = finish<true>(sums, count, kBias<V>, &made);
  const Limits none = {-INFINITY, INFINITY};
#pragma unroll
  for (int i = 0; i < kRead / kWidth; ++i) {
    reinterpret_cast<AlignedVector<Y, kWidth>*>(y)[i] = scaled_pack<Y>(in.at[i], by, none);
  }
}

// A block sums a volume, and scales it too where Y is not void. All of its threads make the
// moments: to hand them round would take longer.
template <class V, class Y, int kWidth>
static __global__ void __launch_bounds__(kSmallThreads)
    small_kernel(const V* v, Y* __restrict__ y, Moments* __restrict__ moments, Count count) {
  kernforge::grid_dependency_synchronize();
  const int64_t n = count.n;
  v += blockIdx.x * n;
  const Sums sums = block_sum<true>(sums_of(v, n, threadIdx.x, blockDim.x));
  Moments made;
  const Scaling by = finish<true>(sums, count, kBias<V>, &made);
  if (moments != nullptr && threadIdx.x == 0) moments[blockIdx.x] = made;
  if constexpr (!std::is_void_v<Y>) {
    y += blockIdx.x * n;
    const Limits none = {-INFINITY, INFINITY};
    for (int64_t pack = threadIdx.x; pack * kWidth < n; pack += blockDim.x) {
      scale_pack<Y, kWidth>(v, y, by, none, pack, n);
    }
  }
}

// -- launches ---

namespace {

template <class P>
int64_t blocks_for(int64_t packs) {
  return (packs + P::kTileVectors - 1) / P::kTileVectors;
}

// Packs may be used where every volume begins where one does.
template <class V, class Y>
bool packs_fit(const V* v, const Y* y, int64_t volumes, int64_t n) {
  constexpr int kWidth = 16 / sizeof(Y);
  const bool first = reinterpret_cast<uintptr_t>(v) % (kWidth * sizeof(V)) == 0 &&
                     reinterpret_cast<uintptr_t>(y) % 16 == 0;
  return first && (volumes == 1 || n % kWidth == 0);
}

// Whether a volume is whole packs of voxels, no more than a block has threads.
template <class V, class Y>
bool kept(const V* v, const Y* y, int64_t n) {
  constexpr int kRead = 16 / sizeof(V);
  return n % kRead == 0 && n <= kRead * kSmallThreads && reinterpret_cast<uintptr_t>(v) % 16 == 0 &&
         reinterpret_cast<uintptr_t>(y) % 16 == 0;
}

template <class V, class Y, int kWidth>
cudaError_t scale(const V* v, Y* y, const Scaling& by, Limits limits, int64_t n,
                  const Device& device, cudaStream_t stream) {
  const int64_t packs = (n + kWidth - 1) / kWidth;
  return Policy::scale<Y>(n * int64_t{sizeof(Y)}, device, [&](auto policy) {
    using P = decltype(policy);
    return launch(device, stream, scale_kernel<P, V, Y, kWidth>, blocks_for<P>(packs),
                  P::kBlockThreads, v, y, by, limits, n);
  });
}

template <class V>
cudaError_t sum_up(const V* v, Moments* moments, Workspace* workspaces, int64_t volumes, int64_t n,
                   const Device& device, cudaStream_t stream) {
  const unsigned each = Policy::blocks_each(volumes, n * sizeof(V), device);
  if (const cudaError_t error =
          cudaMemsetAsync(workspaces, 0, volumes * sizeof(Workspace), stream)) {
    return error;
  }
  return launch(device, stream, moments_kernel<V>, volumes * each, kThreads, v, moments, workspaces,
                each, counted(n));
}

template <class V, class Y, int kWidth>
cudaError_t standardize(const V* v, Y* y, Workspace* workspaces, int64_t volumes, int64_t n,
                        const Device& device, cudaStream_t stream) {
  if (kept(v, y, n)) {
    return launch(device, stream, kept_kernel<V, Y>, volumes,
                  Policy::small_threads(n * sizeof(V) / 2), v, y, counted(n));
  }
  if (n <= Policy::kSmall) {
    return launch(device, stream, small_kernel<V, Y, kWidth>, volumes, Policy::small_threads(n), v,
                  y, nullptr, counted(n));
  }
  const int64_t packs = (n + kWidth - 1) / kWidth;
  if (Policy::in_parts(volumes, n)) {
    const unsigned parts = Policy::parts_each(n);
    const auto each = static_cast<unsigned>((packs + kThreads - 1) / kThreads);
    if (const cudaError_t error = launch(device, stream, parts_kernel<V>, volumes * parts, kThreads,
                                         v, workspaces, parts, n)) {
      return error;
    }
    return launch(device, stream, scale_parts_kernel<V, Y, kWidth>, volumes * each, kThreads, v, y,
                  workspaces, parts, each, counted(n));
  }
  if (const cudaError_t error = sum_up(v, nullptr, workspaces, volumes, n, device, stream)) {
    return error;
  }
  using P = Policy::ScaleEach<Y>;
  const auto each = static_cast<unsigned>(blocks_for<P>(packs));
  return launch(device, stream, scale_each_kernel<P, V, Y, kWidth>, volumes * each,
                P::kBlockThreads, v, y, workspaces, each, n);
}

// Calls `run` with values whose types say which C++ types a volume and a result have.
template <class Run>
cudaError_t with_type(From from, const Run& run) {
  switch (from) {
    case From::kUint8:
      return run(uint8_t{});
    case From::kInt16:
      return run(int16_t{});
    case From::kUint16:
      return run(uint16_t{});
  }
  return cudaErrorInvalidValue;
}

template <class Run>
cudaError_t with_types(From from, To to, const Run& run) {
  return with_type(from, [&](auto v) {
    switch (to) {
      case To::kFloat:
        return run(v, float{});
      case To::kBfloat16:
        return run(v, __nv_bfloat16{});
      case To::kHalf:
        return run(v, __half{});
    }
    return cudaErrorInvalidValue;
  });
}

}  // namespace

int64_t workspaces_for(int64_t volumes, int64_t n) {
  return Policy::in_parts(volumes, n) ? volumes * Policy::parts_each(n) : volumes;
}

cudaError_t scale_launch(From from, To to, const void* v, void* y, const Scaling& by, Limits limits,
                         int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_types(from, to, [&](auto in, auto out) {
    using V = decltype(in);
    using Y = decltype(out);
    const auto* given = static_cast<const V*>(v);
    auto* made = static_cast<Y*>(y);
    if (!packs_fit(given, made, 1, n)) {
      return scale<V, Y, 1>(given, made, by, limits, n, device, stream);
    }
    return scale<V, Y, kernforge::kVectorLength<Y>>(given, made, by, limits, n, device, stream);
  });
}

cudaError_t moments_launch(From from, const void* v, Moments* moments, Workspace* workspaces,
                           int64_t volumes, int64_t n, cudaStream_t stream) {
  if (volumes == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_type(from, [&](auto in) {
    using V = decltype(in);
    const auto* given = static_cast<const V*>(v);
    if (n > Policy::kSmall) {
      return sum_up(given, moments, workspaces, volumes, n, device, stream);
    }
    return launch(device, stream, small_kernel<V, void, 1>, volumes, Policy::small_threads(n),
                  given, nullptr, moments, counted(n));
  });
}

cudaError_t standardize_launch(From from, To to, const void* v, void* y, Workspace* workspaces,
                               int64_t volumes, int64_t n, cudaStream_t stream) {
  if (volumes == 0 || n == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return with_types(from, to, [&](auto in, auto out) {
    using V = decltype(in);
    using Y = decltype(out);
    const auto* given = static_cast<const V*>(v);
    auto* made = static_cast<Y*>(y);
    if (!packs_fit(given, made, volumes, n)) {
      return standardize<V, Y, 1>(given, made, workspaces, volumes, n, device, stream);
    }
    return standardize<V, Y, kernforge::kVectorLength<Y>>(given, made, workspaces, volumes, n,
                                                          device, stream);
  });
}

}  // namespace normalize_volume
