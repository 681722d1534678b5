// SPDX-License-Identifier: Apache-2.0
//
// Rows on their way: the copy engine (cp.async.bulk, compute capability 9.0 and later) brings the
// next rows to shared memory while a block computes one, which takes no registers and no threads.

#pragma once

#include <cstdint>

#include "kernforge/hopper.cuh"
#include "rows.cuh"

namespace layer_norm {

// `kStages` times a row of each of `kTensors` tensors, of which a block reads one stage at a time.
// Code for architectures before 9.0 is compiled and never launched.
template <int kTensors, int kStages>
struct Ring {
  static constexpr int kRows = kTensors * kStages;

  uint32_t memory, barriers, bytes;  // addresses in shared memory; bytes of one row
  int stage;                         // that is read
  uint32_t parity;

  // All threads of the block.
  __device__ Ring(uint4* at, uint64_t (&full)[kStages], uint32_t row_bytes)
      : memory(kernforge::hopper::shared_address(at)),
        barriers(kernforge::hopper::shared_address(full)),
        bytes(row_bytes),
        stage(0),
        parity(0) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0) {
      for (int s = 0; s < kStages; ++s) kernforge::hopper::mbarrier_init(barriers + 8 * s, 1);
      kernforge::hopper::mbarrier_init_fence();
      kernforge::hopper::fence_shared_for_copies();
    }
#endif
    __syncthreads();
  }

  // Asks for a row of each tensor; in one thread, when no thread reads the stage any more.
  __device__ __forceinline__ void ask(int into, const void* const (&rows)[kTensors]) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const uint32_t barrier = barriers + 8 * into;
    kernforge::hopper::mbarrier_expect(barrier, kTensors * bytes);
#pragma unroll
    for (int t = 0; t < kTensors; ++t) {
      kernforge::hopper::load_bytes(memory + (into * kTensors + t) * bytes, rows[t], bytes,
                                    barrier);
    }
#endif
  }

  // Until the rows of the stage have come.
  __device__ __forceinline__ void wait() const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    kernforge::hopper::mbarrier_wait(barriers + 8 * stage, parity);
#endif
  }

  template <class T>
  __device__ __forceinline__ Vector<T> read(int tensor, int vector) const {
    Vector<T> v;
    auto& words = reinterpret_cast<uint4&>(v);
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(memory + (stage * kTensors + tensor) * bytes + 16 * vector)
                 : "memory");
    return v;
  }

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace layer_norm
