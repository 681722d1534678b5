// SPDX-License-Identifier: Apache-2.0
//
// y = 2 * x with one fault each. A fault is as small as in practice, and where it can be, such that
// the values come out right: only the check made for it sees it.

#include <algorithm>
#include <mutex>

#include "broken.h"

namespace broken {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 65535;  // loops take what is left
constexpr int kPack = 4;            // floats of 16 bytes

constexpr int kMostDevices = 64;

// What is made once for each device: no fault but NoDeviceGuard is one of a second device.
template <typename T, typename Make>
T once_a_device(T (&made)[kMostDevices], Make make) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> held(mutex);
  int device = 0;
  cudaGetDevice(&device);
  if (made[device] == nullptr) made[device] = make();
  return made[device];
}

__device__ int64_t first_index() { return int64_t{blockIdx.x} * kThreads + threadIdx.x; }
__device__ int64_t index_step() { return int64_t{gridDim.x} * kThreads; }

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>(
      std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks));
}

__global__ void honest_kernel(const float* x, float* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) y[i] = 2 * x[i];
}

// One thread too many.
__global__ void write_behind_kernel(const float* x, float* y, int64_t count) {
  for (int64_t i = first_index(); i <= count; i += index_step()) y[i] = i < count ? 2 * x[i] : 1;
}

// What lies behind x counts if it is NaN; ordinary numbers do no harm.
__global__ void read_behind_kernel(const float* x, float* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const float next = x[i + 1];
    y[i] = i == count - 1 && next != next ? next : 2 * x[i];
  }
}

// The last elements, which fill no pack, are left out.
__global__ void wrong_tail_kernel(const float* x, float* y, int64_t count) {
  const int64_t whole = count / kPack * kPack;
  for (int64_t i = first_index(); i < whole; i += index_step()) y[i] = 2 * x[i];
}

// Each thread reads what the opposite one of its block stored, without waiting for it. The first
// warp comes late, as it may at any time.
__global__ void missing_sync_kernel(const float* x, float* y, int64_t count) {
  __shared__ float tile[kThreads];
  const int other = kThreads - 1 - static_cast<int>(threadIdx.x);
  for (int64_t base = int64_t{blockIdx.x} * kThreads; base < count; base += index_step()) {
    if (threadIdx.x < 32) __nanosleep(20000);
    if (base + threadIdx.x < count) tile[threadIdx.x] = 2 * x[base + threadIdx.x];
    if (base + other < count) y[base + other] = tile[other];
    __syncthreads();
  }
}

// The same within a warp, whose threads happen to go in step: the values are right.
__global__ void missing_warp_sync_kernel(const float* x, float* y, int64_t count) {
  __shared__ volatile float tile[kThreads];
  const int other = static_cast<int>(threadIdx.x) ^ 1;
  for (int64_t base = int64_t{blockIdx.x} * kThreads; base < count; base += index_step()) {
    if (base + threadIdx.x < count) tile[threadIdx.x] = 2 * x[base + threadIdx.x];
    if (base + other < count) y[base + other] = tile[other];
    __syncthreads();
  }
}

// Half of each warp meets a barrier for all; the hardware counts those that leave as arrived.
__global__ void divergent_barrier_kernel(const float* x, float* y, int64_t count) {
  if (threadIdx.x % 32 < 16) __syncthreads();
  for (int64_t i = first_index(); i < count; i += index_step()) y[i] = 2 * x[i];
}

// Looks at memory that nobody wrote; what is there is hardly ever this number.
__global__ void uninitialised_kernel(const float* x, float* y, const float* scratch,
                                     int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    const float seen = scratch[i % kThreads];
    y[i] = seen == 1.2345678e-21f ? seen : 2 * x[i];
  }
}

// Three parts are added in whatever order their blocks come: right, but for the last bits.
__global__ void float_atomics_kernel(const float* x, float* y, int64_t count) {
  const float part = blockIdx.y == 0 ? 1.0f / 3 : blockIdx.y == 1 ? 2.0f / 3 : 1.0f;
  __nanosleep(clock64() % 7 * 500);  // an idle GPU is more regular than a busy one
  for (int64_t i = first_index(); i < count; i += index_step()) atomicAdd(y + i, part * x[i]);
}

// fmaxf gives the other argument for a NaN.
__global__ void swallowed_nan_kernel(const float* x, float* y, int64_t count) {
  for (int64_t i = first_index(); i < count; i += index_step()) {
    y[i] = 2 * fmaxf(x[i], -__int_as_float(0x7f800000));
  }
}

// Packs of 16 bytes wherever x and y begin.
__global__ void misaligned_kernel(const float* x, float* y, int64_t count) {
  const int64_t packs = count / kPack;
  for (int64_t i = first_index(); i < packs; i += index_step()) {
    const float4 p = reinterpret_cast<const float4*>(x)[i];
    reinterpret_cast<float4*>(y)[i] = make_float4(2 * p.x, 2 * p.y, 2 * p.z, 2 * p.w);
  }
  for (int64_t i = packs * kPack + first_index(); i < count; i += index_step()) y[i] = 2 * x[i];
}

__global__ void index_of_32_bits_kernel(const float* x, float* y, int count) {
  const int step = static_cast<int>(index_step());
  for (int i = static_cast<int>(first_index()); i < count; i += step) y[i] = 2 * x[i];
}

// A stream of our own; `joined_before`: it begins after what is queued on the caller's.
cudaError_t on_own_stream(const float* x, float* y, int64_t count, cudaStream_t stream,
                          bool joined_before) {
  static cudaStream_t streams[kMostDevices];
  const cudaStream_t own = once_a_device(streams, [] {
    cudaStream_t made = nullptr;
    cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    return made;
  });
  if (joined_before) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, stream);
    cudaStreamWaitEvent(own, event, 0);
    cudaEventDestroy(event);
  }
  honest_kernel<<<blocks_for(count), kThreads, 0, own>>>(x, y, count);
  return cudaGetLastError();
}

cudaError_t with_scratch(const float* x, float* y, int64_t count, cudaStream_t stream) {
  static const float* kept[kMostDevices];
  const float* scratch = once_a_device(kept, [] {  // so that a graph can be captured later
    void* made = nullptr;
    cudaMalloc(&made, kThreads * sizeof(float));
    return static_cast<const float*>(made);
  });
  uninitialised_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, y, scratch, count);
  return cudaGetLastError();
}

cudaError_t with_atomics(const float* x, float* y, int64_t count, cudaStream_t stream) {
  if (const cudaError_t error = cudaMemsetAsync(y, 0, count * sizeof(float), stream)) return error;
  const dim3 grid(blocks_for(count), 3);
  float_atomics_kernel<<<grid, kThreads, 0, stream>>>(x, y, count);
  return cudaGetLastError();
}

cudaError_t with_malloc(const float* x, float* y, int64_t count, cudaStream_t stream) {
  void* scratch = nullptr;
  if (const cudaError_t error = cudaMalloc(&scratch, 256)) return error;
  honest_kernel<<<blocks_for(count), kThreads, 0, stream>>>(x, y, count);
  return cudaFree(scratch);
}

}  // namespace

cudaError_t launch(Fault fault, const float* x, float* y, int64_t count, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const unsigned blocks = blocks_for(count);
  switch (fault) {
    case Fault::kWriteBehind:
      write_behind_kernel<<<blocks_for(count + 1), kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kReadBehind:
      read_behind_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kWrongTail:
      wrong_tail_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kMissingSync:
      missing_sync_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kMissingWarpSync:
      missing_warp_sync_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kDivergentBarrier:
      divergent_barrier_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kUninitialised:
      return with_scratch(x, y, count, stream);
    case Fault::kFloatAtomics:
      return with_atomics(x, y, count, stream);
    case Fault::kSwallowedNan:
      swallowed_nan_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kMisalignedVectors:
      misaligned_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
    case Fault::kIndexOf32Bits:
      index_of_32_bits_kernel<<<blocks, kThreads, 0, stream>>>(x, y, static_cast<int>(count));
      break;
    case Fault::kDefaultStream:
      honest_kernel<<<blocks, kThreads>>>(x, y, count);
      break;
    case Fault::kOwnStream:
      return on_own_stream(x, y, count, stream, false);
    case Fault::kOwnStreamNotJoined:
      return on_own_stream(x, y, count, stream, true);
    case Fault::kMallocInside:
      return with_malloc(x, y, count, stream);
    case Fault::kSyncInside:
      honest_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      return cudaStreamSynchronize(stream);
    case Fault::kNone:
    case Fault::kIgnoredStride:
    case Fault::kNoDeviceGuard:
    case Fault::kCount:
      honest_kernel<<<blocks, kThreads, 0, stream>>>(x, y, count);
      break;
  }
  return cudaGetLastError();
}

}  // namespace broken
