// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for float32.

#include "hopper_launch.cuh"

namespace linear_gelu::hopper {

cudaError_t launch_float32(Formula formula, const Linear& of, cudaStream_t stream) {
  return launch_type<float>(formula, of, stream);
}

}  // namespace linear_gelu::hopper
