// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for bfloat16.

#include "hopper_launch.cuh"

namespace linear_gelu::hopper {

cudaError_t launch_bfloat16(Formula formula, const Linear& of, cudaStream_t stream) {
  return launch_type<__nv_bfloat16>(formula, of, stream);
}

}  // namespace linear_gelu::hopper
