// SPDX-License-Identifier: Apache-2.0
//
// hopper.cuh for bfloat16.

#include "hopper_launch.cuh"

namespace moe::hopper {

cudaError_t launch_bfloat16(const Experts& of, const sorting::Tables& tables, void* tokens,
                            void* inner, cudaStream_t stream) {
  return launch<__nv_bfloat16>(of, tables, tokens, inner, stream);
}

}  // namespace moe::hopper
