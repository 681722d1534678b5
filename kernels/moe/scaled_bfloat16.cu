// SPDX-License-Identifier: Apache-2.0
//
// scaled.cuh for bfloat16.

#include <algorithm>

#include "scaled.cuh"

namespace moe::hopper {

cudaError_t launch_scaled_bfloat16(const Experts& of, const sorting::Tables& tables, void* tokens,
                                   void* inner, cudaStream_t stream) {
  return launch_with_factors<__nv_bfloat16>(of, tables, tokens, inner, stream);
}

}  // namespace moe::hopper
