// SPDX-License-Identifier: Apache-2.0
//
// Programmatic dependent launch: from Hopper (compute capability 9.0) on, a kernel may be set up
// while the kernel before it in the stream still runs. Between two nodes of a CUDA graph this saves
// 0.1 to 0.2 us, a sixth of what a small kernel takes.
//
//   __global__ void kernel(const float* x, float* y) {
//     kernforge::grid_dependency_synchronize();  // first, in all threads
//     ...
//   }
//   kernforge::Device device;
//   cudaError_t error = kernforge::current_device(&device);
//   if (error == cudaSuccess) error = kernforge::launch(device, stream, kernel, grid, block, x, y);
//
// Memory is read and written after the call alone: no parameter is both const and __restrict__, and
// none is read with __ldg, because a compiler may move such loads before it. A kernel that follows
// is safe however it is launched: it starts when this one has ended, which waited.
//
// A launch takes 1 to 1.6 ns for each character of the kernel's mangled name (CUDA 13.0, H200), and
// an anonymous namespace has some 48. So give a kernel a short name, few template parameters, and
// instead of an anonymous namespace `static`, which is as local to its file and adds nothing. What
// a template argument is called counts too.

#pragma once

#include <cuda_device_runtime_api.h>

#include <cstdint>

namespace kernforge {
namespace {

// What a launch may be tuned by.
struct Device {
  int compute_capability;  // 90 for 9.0
  int multiprocessors;
  bool programmatic_stream_serialization;  // the code that runs there waits
};

// Returns when the kernels before this one have ended and what they wrote can be read.
__device__ __forceinline__ void grid_dependency_synchronize() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

__global__ void probe_kernel() {}

// The current device, asked for its properties once. A Hopper may run code that was compiled for
// its predecessors and does not wait, so the code of this file is asked too.
inline cudaError_t current_device(Device* device) {
  constexpr int kDevices = 64;
  static uint32_t known[kDevices];  // 0: not asked yet; <atomic> takes nvcc half a second
  int index = 0;
  if (const cudaError_t error = cudaGetDevice(&index)) return error;
  uint32_t packed = index < kDevices ? __atomic_load_n(&known[index], __ATOMIC_RELAXED) : 0;
  if (packed == 0) {
    int major = 0, minor = 0, multiprocessors = 0;
    cudaFuncAttributes code;
    cudaError_t error = cudaFuncGetAttributes(&code, probe_kernel);
    if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
    if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
    if (!error) {
      error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, index);
    }
    if (error) return error;
    packed = static_cast<uint32_t>(multiprocessors) << 16 |
             static_cast<uint32_t>(10 * major + minor) << 1 | (code.ptxVersion >= 90 ? 1 : 0);
    if (index < kDevices) __atomic_store_n(&known[index], packed, __ATOMIC_RELAXED);
  }
  *device = {static_cast<int>(packed >> 1 & 0x7fff), static_cast<int>(packed >> 16),
             (packed & 1) != 0};
  return cudaSuccess;
}

// Launches a kernel that begins with grid_dependency_synchronize, with `shared` bytes of shared
// memory besides what it declares.
template <class... Parameters, class... Arguments>
cudaError_t launch_with_shared(const Device& device, cudaStream_t stream,
                               void (*kernel)(Parameters...), int64_t grid, int block, int shared,
                               Arguments... arguments) {
  if (shared > 0) {  // the limit is 48 KiB of both kinds together, unless one asks for more
    const cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    if (error) return error;
  }
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(grid));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = device.programmatic_stream_serialization ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

// The same without.
template <class... Parameters, class... Arguments>
cudaError_t launch(const Device& device, cudaStream_t stream, void (*kernel)(Parameters...),
                   int64_t grid, int block, Arguments... arguments) {
  return launch_with_shared(device, stream, kernel, grid, block, 0, arguments...);
}

}  // namespace
}  // namespace kernforge
