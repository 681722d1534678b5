// SPDX-License-Identifier: Apache-2.0
//
// hopper.cuh for float16.

#include "hopper_launch.cuh"

namespace moe::hopper {

cudaError_t launch_float16(const Experts& of, const sorting::Tables& tables, void* tokens,
                           void* inner, cudaStream_t stream) {
  return launch<__half>(of, tables, tokens, inner, stream);
}

}  // namespace moe::hopper
