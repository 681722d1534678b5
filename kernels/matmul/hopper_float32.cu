// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for float32, multiplied as tf32.

#include "hopper_table.cuh"

namespace matmul::hopper {

cudaError_t launch_float32(const Matmul& of, cudaStream_t stream) {
  return launch_kind<Kind<float, float, float, Major::kDepth, Major::kDepth>>(of, stream);
}

}  // namespace matmul::hopper
