// SPDX-License-Identifier: Apache-2.0
//
// How tensors of one shape lie beside a dense result, in as few dimensions as that can be said. No
// torch header.

#pragma once

#include <cstdint>

namespace kernforge {

// Sizes and strides in elements, the fastest dimension of the result first.
template <int kInputs>
struct Strides {
  static constexpr int kMaxDims = 6;
  bool fits;  // else it takes more dimensions, or an offset more than 31 bits
  int dims;
  uint32_t sizes[kMaxDims];
  uint32_t strides[kInputs][kMaxDims];
};

// Dimensions that lie behind each other in all inputs become one. `out` are the strides of the
// result, which is dense and has an element.
template <int kInputs>
Strides<kInputs> merged_strides(int64_t dims, const int64_t* sizes, const int64_t* out,
                                const int64_t* const (&in)[kInputs]) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  Strides<kInputs> merged = {};
  int64_t items = 1, span[kInputs] = {}, last = 0;
  for (;;) {
    int64_t next = -1;  // the dimension with the least stride above the last one's
    for (int64_t d = 0; d < dims; ++d) {
      if (sizes[d] > 1 && out[d] > last && (next < 0 || out[d] < out[next])) next = d;
    }
    if (next < 0) break;
    last = out[next];
    items *= sizes[next];
    const int end = merged.dims - 1;
    bool behind = end >= 0;
    for (int k = 0; k < kInputs; ++k) {
      span[k] += (sizes[next] - 1) * in[k][next];
      if (items >= kLimit || span[k] >= kLimit) return merged;
      behind = behind && in[k][next] == int64_t{merged.strides[k][end]} * merged.sizes[end];
    }
    if (behind) {
      merged.sizes[end] *= static_cast<uint32_t>(sizes[next]);
      continue;
    }
    if (merged.dims == merged.kMaxDims) return merged;
    merged.sizes[merged.dims] = static_cast<uint32_t>(sizes[next]);
    for (int k = 0; k < kInputs; ++k) {
      merged.strides[k][merged.dims] = static_cast<uint32_t>(in[k][next]);
    }
    ++merged.dims;
  }
  merged.fits = true;
  return merged;
}

}  // namespace kernforge
