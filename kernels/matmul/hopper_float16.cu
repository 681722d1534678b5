// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for float16.

#include "hopper_table.cuh"

namespace matmul::hopper {

cudaError_t launch_float16(const Matmul& of, cudaStream_t stream) {
  return launch_halves<__half>(of, stream);
}

}  // namespace matmul::hopper
