// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for float16.

#include "hopper_launch.cuh"

namespace linear_gelu::hopper {

cudaError_t launch_float16(Formula formula, const Linear& of, cudaStream_t stream) {
  return launch_type<__half>(formula, of, stream);
}

}  // namespace linear_gelu::hopper
