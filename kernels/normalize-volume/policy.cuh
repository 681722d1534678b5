// SPDX-License-Identifier: Apache-2.0
//
// How the work is cut: all that was tuned, chosen by sizes, types and device. On an H200, uint16
// volumes, us before and after what is chosen here (README.md; benchmarks/results):
//
//   computed, float32, 2^10: a volume stays in registers    4.18   3.77
//   the same in a CUDA graph                                1.45   1.17
//   given, bfloat16, 2^22: two vectors a thread, not one    7.26   6.98
//   given, float32, 2^26, of a copy: two vectors, not four  94 %   96 %

#pragma once

#include <algorithm>
#include <cstdint>

#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "sums.cuh"

namespace normalize_volume {

// What a block does of a result: threads, and vectors of 16 bytes of each.
template <int kBlockThreads_, int kVectorsPerThread_>
struct ScalePolicy {
  static constexpr int kBlockThreads = kBlockThreads_;
  static constexpr int kVectorsPerThread = kVectorsPerThread_;
  static constexpr int kTileVectors = kBlockThreads * kVectorsPerThread;
  static_assert(kBlockThreads % 32 == 0 && kBlockThreads <= 1024, "a block is whole warps");
};

namespace {

struct Policy {
  static constexpr int kBlockThreads = 256;
  static constexpr int kSmallBlockThreads = 512;  // of a block that has a volume alone
  static constexpr int64_t kSmall = 1 << 15;      // voxels of such a volume, at most
  static constexpr int64_t kMiddle = 1 << 20;     // of all volumes whose sums are left side by side
  static constexpr int kVoxelsPerThread = 8;      // that a thread sums, at least
  static constexpr int kVectorsPerThread = 4;     // likewise where blocks fill the device
  static constexpr int kBlocksPerMultiprocessor = 8;
  static_assert(kBlockThreads <= kMostBlockThreads && kSmallBlockThreads <= kMostBlockThreads,
                "block_sum has a place for each warp");
  static_assert(kSmall <= kFewVoxels, "one block's sums are formed as those of few voxels");

  // Volumes scaled alike, by the bytes of the result.
  template <class Y, class Launch>
  static cudaError_t scale(int64_t bytes, const kernforge::Device&, const Launch& launch) {
    if constexpr (sizeof(Y) == 4) {
      // A vector of float32 is made of 8 bytes or 4: a thread asks for several at a time.
      if (bytes >= 64 << 20) return launch(ScalePolicy<128, 2>{});
      if (bytes >= 16 << 20) return launch(ScalePolicy<64, 4>{});
    } else {
      if (bytes >= 8 << 20 && bytes < 64 << 20) return launch(ScalePolicy<128, 2>{});
    }
    return launch(ScalePolicy<256, 1>{});
  }

  // Large volumes scaled each by its own moments.
  template <class Y>
  using ScaleEach = ScalePolicy<sizeof(Y) == 4 ? 128 : 256, sizeof(Y) == 4 ? 2 : 1>;

  // Threads of a block that has a volume alone: whole warps, all of a block's at most.
  static int small_threads(int64_t n) {
    constexpr int64_t kWarp = int64_t{32} * kVoxelsPerThread;
    const int64_t warps = std::max<int64_t>((n + kWarp - 1) / kWarp, 1);
    return static_cast<int>(std::min<int64_t>(32 * warps, kSmallBlockThreads));
  }

  static bool in_parts(int64_t volumes, int64_t n) { return volumes * n <= kMiddle; }

  // Blocks whose sums of one volume lie side by side; a thread adds up one of them.
  static unsigned parts_each(int64_t n) {
    const int64_t work = n / (kVoxelsPerThread * kBlockThreads);
    return static_cast<unsigned>(std::clamp<int64_t>(work, 1, kBlockThreads));
  }

  // Blocks that sum one volume: over all volumes as many as fill the device several times.
  static unsigned blocks_each(int64_t volumes, int64_t bytes, const kernforge::Device& device) {
    const int64_t blocks = int64_t{device.multiprocessors} * kBlocksPerMultiprocessor;
    const int64_t fill = (blocks + volumes - 1) / volumes;
    const int64_t work = bytes / (kernforge::kVectorBytes * kVectorsPerThread * kBlockThreads);
    return static_cast<unsigned>(std::max<int64_t>(1, std::min(fill, work)));
  }
};

}  // namespace
}  // namespace normalize_volume
