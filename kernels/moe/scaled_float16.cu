// SPDX-License-Identifier: Apache-2.0
//
// scaled.cuh for float16.

#include <algorithm>

#include "scaled.cuh"

namespace moe::hopper {

cudaError_t launch_scaled_float16(const Experts& of, const sorting::Tables& tables, void* tokens,
                                  void* inner, cudaStream_t stream) {
  return launch_with_factors<__half>(of, tables, tokens, inner, stream);
}

}  // namespace moe::hopper
