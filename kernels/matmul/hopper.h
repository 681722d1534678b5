// SPDX-License-Identifier: Apache-2.0
//
// The launchers of hopper_*.cu, a file for each type of the elements.

#pragma once

#include "matmul.h"

namespace matmul::hopper {

// Of compute capability 9.0. Of each operand one dimension is side by side (for float32, which is
// rounded to tf32, and fp8 the depth), columns of c; addresses and the other strides are multiples
// of 16 bytes.
cudaError_t launch_bfloat16(const Matmul& of, cudaStream_t stream);
cudaError_t launch_float16(const Matmul& of, cudaStream_t stream);
cudaError_t launch_float32(const Matmul& of, cudaStream_t stream);
cudaError_t launch_fp8(const Matmul& of, cudaStream_t stream);

}  // namespace matmul::hopper
