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
// Where launches are what takes time: a volume of up to kSmall voxels is one block's, which sums
// and then scales it, from registers where one pack a thread is all of it. Up to kMiddle in all,
// blocks leave their sums side by side, and every block that scales adds them up for itself: no
// place has to be made 0 before, and none is waited for.

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "early.cuh"
#include "normalize_volume.h"
#include "scaling.cuh"
#include "sums.cuh"

namespace normalize_volume {
namespace {

constexpr int kThreads = 256;
constexpr int kSmallThreads = 512;
constexpr int64_t kSmall = 1 << 15;  // what warp_sum calls few
constexpr int64_t kMiddle = 1 << 20;
constexpr int64_t kTwoFrom = 8 << 20, kTwoTo = 64 << 20;  // bytes of a result of halves

// All volumes scaled alike are one.
template <class V, class Y, int kWidth, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const V* v, Y* __restrict__ y, const Scaling by, const Limits limits, int64_t n) {
  early::wait();
  scale_packs<Y, kWidth, kThreads, kPacks, false>(v, y, by, limits, blockIdx.x, n);
}

// Each volume by its own scaling, `each` blocks of it, from the last to the first.
template <class V, class Y, int kWidth, int kThreads, int kPacks>
__global__ void __launch_bounds__(kThreads)
    scale_each_kernel(const V* v, Y* __restrict__ y, const Workspace* workspaces, unsigned each,
                      int64_t n) {
  early::wait();
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const unsigned volume = gridDim.x == each ? 0 : block / each;
  const Limits none = {-INFINITY, INFINITY};
  scale_packs<Y, kWidth, kThreads, kPacks, true>(
      v + volume * n, y + volume * n, workspaces[volume].scaling, none, block - volume * each, n);
}

// -- moments ---

// `each` blocks sum one volume; whichever is the last to add its part makes the moments.
template <class V>
__global__ void __launch_bounds__(kThreads)
    moments_kernel(const V* v, Moments* __restrict__ moments, Workspace* workspaces, unsigned each,
                   Count count) {
  early::wait();
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
__global__ void __launch_bounds__(kThreads)
    parts_kernel(const V* v, Workspace* workspaces, unsigned each, int64_t n) {
  early::wait();
  const unsigned volume = blockIdx.x / each;
  const int64_t rank = int64_t{blockIdx.x - volume * each} * kThreads + threadIdx.x;
  const Sums part = block_sum(sums_of(v + volume * n, n, rank, int64_t{each} * kThreads));
  if (threadIdx.x == 0) workspaces[blockIdx.x].sums = part;
}

// Each volume by the sum of its `parts`, of which a thread adds at most one; `each` blocks of it.
template <class V, class Y, int kWidth>
__global__ void __launch_bounds__(kThreads)
    scale_parts_kernel(const V* v, Y* __restrict__ y, const Workspace* workspaces, unsigned parts,
                       unsigned each, Count count) {
  __shared__ Scaling by;
  early::wait();
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
__global__ void __launch_bounds__(kSmallThreads)
    kept_kernel(const V* v, Y* __restrict__ y, Count count) {
  constexpr int kRead = 16 / sizeof(V), kWidth = 16 / sizeof(Y);
  early::wait();
  const auto n = static_cast<unsigned>(count.n);
  const unsigned at = threadIdx.x * kRead;
  v += blockIdx.x * count.n + at;
  y += blockIdx.x * count.n + at;
  Pack<Pack<V, kWidth>, kRead / kWidth> in;
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
    reinterpret_cast<Pack<Y, kWidth>*>(y)[i] = scaled_pack<Y>(in.at[i], by, none);
  }
}

// A block sums a volume, and scales it too where Y is not void. All of its threads make the
// moments: to hand them round would take longer.
template <class V, class Y, int kWidth>
__global__ void __launch_bounds__(kSmallThreads)
    small_kernel(const V* v, Y* __restrict__ y, Moments* __restrict__ moments, Count count) {
  early::wait();
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

unsigned blocks_for(int64_t packs, int64_t each = kThreads) {
  return static_cast<unsigned>((packs + each - 1) / each);
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
                  cudaStream_t stream) {
  const int64_t packs = (n + kWidth - 1) / kWidth;
  // A pack of float32 is made of 8 bytes or 4: of large volumes a thread asks for several at a
  // time. Of halves two at a time are faster while a result fits the L2 cache.
  const int64_t bytes = n * int64_t{sizeof(Y)};
  if (sizeof(Y) == 4 && bytes >= 16 << 20 && bytes < 64 << 20) {
    return early::launch(scale_kernel<V, Y, kWidth, 64, 4>, blocks_for(packs), 64, stream, v, y, by,
                         limits, n);
  }
  if (sizeof(Y) == 4 ? bytes >= 64 << 20 : bytes >= kTwoFrom && bytes < kTwoTo) {
    return early::launch(scale_kernel<V, Y, kWidth, 128, 2>, blocks_for(packs), 128, stream, v, y,
                         by, limits, n);
  }
  return early::launch(scale_kernel<V, Y, kWidth, kThreads, 1>, blocks_for(packs), kThreads, stream,
                       v, y, by, limits, n);
}

// As many blocks for each volume as fill the device eight times over all volumes, but none without
// four packs a thread.
cudaError_t blocks_each(int64_t volumes, int64_t bytes, unsigned* each) {
  int device = 0, processors = 0;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  if (const cudaError_t error =
          cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) {
    return error;
  }
  const int64_t fill = (int64_t{processors} * 8 + volumes - 1) / volumes;
  const int64_t work = bytes / (16 * 4 * kThreads);
  *each = static_cast<unsigned>(std::max<int64_t>(1, std::min(fill, work)));
  return cudaSuccess;
}

// Blocks whose sums of one volume lie side by side: at least 8 voxels a thread.
unsigned parts_each(int64_t n) {
  return static_cast<unsigned>(
      std::max<int64_t>(1, std::min<int64_t>(kThreads, n / (8 * kThreads))));
}

bool in_parts(int64_t volumes, int64_t n) { return volumes * n <= kMiddle; }

template <class V>
cudaError_t sum_up(const V* v, Moments* moments, Workspace* workspaces, int64_t volumes, int64_t n,
                   cudaStream_t stream) {
  unsigned each = 1;
  if (const cudaError_t error = blocks_each(volumes, n * sizeof(V), &each)) return error;
  if (const cudaError_t error =
          cudaMemsetAsync(workspaces, 0, volumes * sizeof(Workspace), stream)) {
    return error;
  }
  return early::launch(moments_kernel<V>, volumes * each, kThreads, stream, v, moments, workspaces,
                       each, counted(n));
}

// A small volume's threads: whole warps with 8 voxels each, or all that a block can have.
int small_threads(int64_t n) {
  const int64_t warps = std::max<int64_t>((n + 255) / 256, 1);
  return static_cast<int>(std::min<int64_t>(32 * warps, kSmallThreads));
}

template <class V, class Y, int kWidth>
cudaError_t standardize(const V* v, Y* y, Workspace* workspaces, int64_t volumes, int64_t n,
                        cudaStream_t stream) {
  if (kept(v, y, n)) {
    return early::launch(kept_kernel<V, Y>, volumes, small_threads(n * sizeof(V) / 2), stream, v, y,
                         counted(n));
  }
  if (n <= kSmall) {
    return early::launch(small_kernel<V, Y, kWidth>, volumes, small_threads(n), stream, v, y,
                         nullptr, counted(n));
  }
  const int64_t packs = (n + kWidth - 1) / kWidth;
  if (in_parts(volumes, n)) {
    const unsigned parts = parts_each(n), each = blocks_for(packs);
    if (const cudaError_t error = early::launch(parts_kernel<V>, volumes * parts, kThreads, stream,
                                                v, workspaces, parts, n)) {
      return error;
    }
    return early::launch(scale_parts_kernel<V, Y, kWidth>, volumes * each, kThreads, stream, v, y,
                         workspaces, parts, each, counted(n));
  }
  if (const cudaError_t error = sum_up(v, nullptr, workspaces, volumes, n, stream)) {
    return error;
  }
  // Blocks of 256 packs: of float32 two a thread.
  constexpr int kPacks = sizeof(Y) == 4 ? 2 : 1;
  const unsigned each = blocks_for(packs);
  return early::launch(scale_each_kernel<V, Y, kWidth, kThreads / kPacks, kPacks>, volumes * each,
                       kThreads / kPacks, stream, v, y, workspaces, each, n);
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
  return in_parts(volumes, n) ? volumes * parts_each(n) : volumes;
}

cudaError_t scale_launch(From from, To to, const void* v, void* y, const Scaling& by, Limits limits,
                         int64_t n, cudaStream_t stream) {
  if (n == 0) return cudaSuccess;
  return with_types(from, to, [&](auto in, auto out) {
    using V = decltype(in);
    using Y = decltype(out);
    const auto* given = static_cast<const V*>(v);
    auto* made = static_cast<Y*>(y);
    if (!packs_fit(given, made, 1, n)) return scale<V, Y, 1>(given, made, by, limits, n, stream);
    return scale<V, Y, 16 / sizeof(Y)>(given, made, by, limits, n, stream);
  });
}

cudaError_t moments_launch(From from, const void* v, Moments* moments, Workspace* workspaces,
                           int64_t volumes, int64_t n, cudaStream_t stream) {
  if (volumes == 0) return cudaSuccess;
  return with_type(from, [&](auto in) {
    using V = decltype(in);
    const auto* given = static_cast<const V*>(v);
    if (n > kSmall) return sum_up(given, moments, workspaces, volumes, n, stream);
    return early::launch(small_kernel<V, void, 1>, volumes, small_threads(n), stream, given,
                         nullptr, moments, counted(n));
  });
}

cudaError_t standardize_launch(From from, To to, const void* v, void* y, Workspace* workspaces,
                               int64_t volumes, int64_t n, cudaStream_t stream) {
  if (volumes == 0 || n == 0) return cudaSuccess;
  return with_types(from, to, [&](auto in, auto out) {
    using V = decltype(in);
    using Y = decltype(out);
    const auto* given = static_cast<const V*>(v);
    auto* made = static_cast<Y*>(y);
    if (!packs_fit(given, made, volumes, n)) {
      return standardize<V, Y, 1>(given, made, workspaces, volumes, n, stream);
    }
    return standardize<V, Y, 16 / sizeof(Y)>(given, made, workspaces, volumes, n, stream);
  });
}

}  // namespace normalize_volume
