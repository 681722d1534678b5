// SPDX-License-Identifier: Apache-2.0
//
// The experts of each token and their weights: one warp a token, its scores in registers.

#pragma once

#include "kernforge/dtype.cuh"
#include "kernforge/pdl.cuh"
#include "moe.h"

namespace moe::routing {

constexpr int kWarps = 4;
constexpr unsigned kAll = 0xFFFFFFFFu;

// Ordered as the numbers are, NaN last and nothing 0.
__device__ __forceinline__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  if (isnan(v)) return 0xFFFFFFFFu;
  return bits ^ (bits >> 31 ? 0xFFFFFFFFu : 0x80000000u);
}

__device__ __forceinline__ float sum_of(float v) {
  for (int width = 16; width > 0; width /= 2) v += __shfl_xor_sync(kAll, v, width);
  return v;
}
__device__ __forceinline__ float largest_of(float v) {
  for (int width = 16; width > 0; width /= 2) v = fmaxf(v, __shfl_xor_sync(kAll, v, width));
  return v;
}

// The groups that are open, one bit each: those whose two best choices have the largest sums.
__device__ __forceinline__ uint32_t open_groups(const float* choices, const Route& of, int lane) {
  const int size = of.experts / of.groups;
  float best = -INFINITY, second = -INFINITY;
  for (int i = 0; lane < of.groups && i < size; ++i) {
    const float v = choices[lane * size + i];
    if (v > best) {
      second = best, best = v;
    } else if (v > second) {
      second = v;
    }
  }
  const uint32_t own = lane < of.groups ? key_of(size > 1 ? best + second : best) : 0;
  int before = 0;
  for (int other = 0; other < of.groups; ++other) {
    const uint32_t theirs = __shfl_sync(kAll, own, other);
    before += theirs > own || (theirs == own && other < lane);
  }
  return __ballot_sync(kAll, lane < of.groups && before < of.top_groups);
}

// kEach: experts of a lane.
template <class T, int kEach>
static __global__ void __launch_bounds__(kWarps * 32) route(const Route of) {
  kernforge::grid_dependency_synchronize();
  extern __shared__ float choices_of_block[];  // with groups, for each warp all experts
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token >= of.tokens) return;
  const T* logits = static_cast<const T*>(of.logits) + token * of.experts;

  float score[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = i * 32 + lane;
    score[i] = e < of.experts ? static_cast<float>(kernforge::widen(logits[e])) : -INFINITY;
  }
  if (of.sigmoid) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) score[i] = 1.f / (1.f + expf(-score[i]));
  } else {
    float most = score[0], all = 0;
#pragma unroll
    for (int i = 1; i < kEach; ++i) most = fmaxf(most, score[i]);
    most = largest_of(most);
#pragma unroll
    for (int i = 0; i < kEach; ++i) all += score[i] = expf(score[i] - most);
    all = sum_of(all);
#pragma unroll
    for (int i = 0; i < kEach; ++i) score[i] /= all;
  }

  uint32_t key[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int e = i * 32 + lane;
    key[i] = 0;
    if (e < of.experts) key[i] = key_of(of.bias == nullptr ? score[i] : score[i] + of.bias[e]);
  }
  if (of.groups > 1) {
    float* choices = choices_of_block + warp * of.experts;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = i * 32 + lane;
      if (e < of.experts) choices[e] = of.bias == nullptr ? score[i] : score[i] + of.bias[e];
    }
    __syncwarp();
    const uint32_t open = open_groups(choices, of, lane);
    const int size = of.experts / of.groups;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int e = i * 32 + lane;
      if (e < of.experts && !(open >> e / size & 1)) key[i] = 0;
    }
  }

  float weight = 0;  // lane j keeps the j-th
  int id = 0;
  for (int j = 0; j < of.top; ++j) {
    uint32_t best = key[0];
    int at = lane;
    float its = score[0];
#pragma unroll
    for (int i = 1; i < kEach; ++i) {
      if (key[i] > best) best = key[i], at = i * 32 + lane, its = score[i];
    }
    const uint32_t most = __reduce_max_sync(kAll, best);
    const int chosen = __reduce_min_sync(kAll, best == most ? at : 0x7FFFFFFF);
    its = __shfl_sync(kAll, its, chosen % 32);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * 32 + lane == chosen) key[i] = 0;
    }
    if (lane == j) weight = its, id = chosen;
  }
  if (of.normalize) weight /= sum_of(weight) + (of.sigmoid ? 1e-20f : 0.f);
  if (lane < of.top) {
    static_cast<float*>(of.weights)[token * of.top + lane] = weight * of.scale;
    of.ids[token * of.top + lane] = id;
  }
}

}  // namespace moe::routing
