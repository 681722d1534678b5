// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for bfloat16.

#include "hopper_table.cuh"

namespace matmul::hopper {

cudaError_t launch_bfloat16(const Matmul& of, cudaStream_t stream) {
  return launch_halves<__nv_bfloat16>(of, stream);
}

}  // namespace matmul::hopper
