// SPDX-License-Identifier: Apache-2.0
//
// Volumes of small integers to floats: what the launchers, the CPU path and the binding share. No
// torch header.
//
//   y = (v - offset) / scale, clipped to [low, high]
//
// in float32, rounded to the result's type at the end. The offset is kept as the nearest whole
// number and a rest of at most 1/2, so that v - whole is exact and a narrow window far from 0 loses
// nothing. For offsets up to 2^23 four roundings are left: of the rest, which a difference of at
// least 1/2 halves, of the difference, of the divisor and of the quotient. That is 3.5 * 2^-24 of
// the result.
//
// The mean and the standard deviation come from the sums of v and v^2, which are integers and exact
// in any order. For n voxels of 16 bits, counted from -32768, |sum v| <= 2^15 n and
// sum v^2 <= 2^30 n, which 64 bits hold up to n = 2^34 = kMost.

#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

#if defined(__CUDACC__)
#define NORMALIZE_VOLUME_BOTH __host__ __device__
#else
#define NORMALIZE_VOLUME_BOTH
#endif

namespace normalize_volume {

enum class From { kUint8, kInt16, kUint16 };
enum class To { kFloat, kBfloat16, kHalf };

constexpr int64_t kMost = int64_t{1} << 34;  // voxels of one volume whose sums are exact

struct Scaling {
  float whole, rest;     // their sum is the offset
  float scale, inverse;  // inverse is 1 / scale
};

struct Limits {
  float low, high;
};

// Sums of v - bias; a sum may be below 0 and is kept modulo 2^64.
struct Sums {
  uint64_t first, second;
};

struct Moments {
  double mean, deviation;  // of all voxels: divided by n, not by n - 1
};

inline NORMALIZE_VOLUME_BOTH Scaling scaling(double whole, double rest, double scale) {
  const auto narrow = static_cast<float>(scale);
  return {static_cast<float>(whole), static_cast<float>(rest), narrow, 1.0f / narrow};
}

// A volume of one value has no deviation: its voxels become 0, divided by 1.
inline NORMALIZE_VOLUME_BOTH double divisor(double deviation) {
  return deviation == 0 ? 1.0 : deviation;
}

// How many voxels a volume has, and 1 by that.
struct Count {
  int64_t n;
  double inverse;
};

inline Count counted(int64_t n) { return {n, 1.0 / static_cast<double>(n)}; }

// a / n without a division, which keeps a GPU's thread waiting: the product by 1 / n, and what it
// misses, after Markstein. It gave the bits of a division for thirty million random volumes.
inline NORMALIZE_VOLUME_BOTH double per_voxel(double a, const Count& by) {
  const double q = a * by.inverse;
  return fma(fma(-q, static_cast<double>(by.n), a), by.inverse, q);
}

// What voxels with these sums are scaled by, and their moments. n * sum v^2 - (sum v)^2 is exact in
// 128 bits, of few voxels (up to 2^15) in 60; what follows rounds a few times in double, on every
// device alike.
template <bool kFew = false>
inline NORMALIZE_VOLUME_BOTH Scaling finish(Sums sums, const Count& count, int bias,
                                            Moments* moments) {
  __extension__ using Wide = std::conditional_t<kFew, uint64_t, unsigned __int128>;
  if (count.n == 0) {
    moments->mean = moments->deviation = NAN;
    return {0, 0, 1, 1};
  }
  const auto first = static_cast<int64_t>(sums.first);
  const double nearest = rint(per_voxel(static_cast<double>(first), count));
  const double whole = nearest + bias;
  const auto left = static_cast<double>(first - static_cast<int64_t>(nearest) * count.n);
  const double rest = per_voxel(left, count);
  const auto size = static_cast<uint64_t>(first < 0 ? -first : first);
  const Wide spread = Wide{sums.second} * static_cast<uint64_t>(count.n) - Wide{size} * size;
  double upper = 0;
  if constexpr (!kFew) upper = static_cast<double>(static_cast<uint64_t>(spread >> 64));
  const double lower = static_cast<double>(static_cast<uint64_t>(spread));
  moments->mean = whole + rest;
  moments->deviation = per_voxel(sqrt(upper * 18446744073709551616.0 + lower), count);
  return scaling(whole, rest, divisor(moments->deviation));
}

// What is subtracted before sums are formed, so that they fit; see above.
constexpr NORMALIZE_VOLUME_BOTH int bias_of(From from) { return from == From::kUint16 ? 32768 : 0; }

// n voxels that lie side by side.
void scale_cpu(From from, To to, const void* v, void* y, const Scaling& by, Limits limits,
               int64_t n);
Sums sums_cpu(From from, const void* v, int64_t n);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// The same on the current device, asynchronously on the stream. Nothing is launched for n == 0.
cudaError_t scale_launch(From from, To to, const void* v, void* y, const Scaling& by, Limits limits,
                         int64_t n, cudaStream_t stream);

// What the launches below need of memory: one for each volume, or one for each block that sums a
// part of one; workspaces_for says how many.
struct Workspace {
  Sums sums;
  Scaling scaling;
  uint32_t done;  // blocks that have added their part
};
constexpr int64_t kWorkspaceBytes = 40;
static_assert(sizeof(Workspace) == kWorkspaceBytes);
int64_t workspaces_for(int64_t volumes, int64_t n);

// The moments of `volumes` volumes of n voxels, one behind the other.
cudaError_t moments_launch(From from, const void* v, Moments* moments, Workspace* workspaces,
                           int64_t volumes, int64_t n, cudaStream_t stream);
// (v - mean) / deviation of each volume: one launch where volumes are small, two where all are
// together, else a fill and two launches.
cudaError_t standardize_launch(From from, To to, const void* v, void* y, Workspace* workspaces,
                               int64_t volumes, int64_t n, cudaStream_t stream);
#endif

}  // namespace normalize_volume
