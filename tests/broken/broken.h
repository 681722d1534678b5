// SPDX-License-Identifier: Apache-2.0
//
// y = 2 * x, honestly and with one fault each: what the kernels and the binding share.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace broken {

// The order is that of NAMES in cuda_kernels.py.
enum class Fault : int64_t {
  kNone,
  kWriteBehind,
  kReadBehind,
  kWrongTail,
  kMissingSync,
  kMissingWarpSync,
  kDivergentBarrier,
  kUninitialised,
  kFloatAtomics,
  kSwallowedNan,
  kMisalignedVectors,
  kIndexOf32Bits,
  kDefaultStream,
  kOwnStream,
  kOwnStreamNotJoined,
  kSyncInside,
  kMallocInside,
  // The two that lie in the binding.
  kIgnoredStride,
  kNoDeviceGuard,
  kCount,
};

// `count` floats on the current device, on the stream but where that is the fault.
cudaError_t launch(Fault fault, const float* x, float* y, int64_t count, cudaStream_t stream);

}  // namespace broken
