// SPDX-License-Identifier: Apache-2.0
//
// The launchers of hopper_*.cu, one for each type of the elements.

#pragma once

#include "linear_gelu.h"

namespace linear_gelu::hopper {

// Of compute capability 9.0; addresses and strides are multiples of 16 bytes, and so are the bytes
// of a row of the result. float32 is rounded to tf32.
cudaError_t launch_bfloat16(Formula formula, const Linear& of, cudaStream_t stream);
cudaError_t launch_float16(Formula formula, const Linear& of, cudaStream_t stream);
cudaError_t launch_float32(Formula formula, const Linear& of, cudaStream_t stream);

}  // namespace linear_gelu::hopper
