// SPDX-License-Identifier: Apache-2.0
//
// The launchers of hopper_*.cu, one for each type of the elements.

#pragma once

#include "tables.h"

namespace moe::hopper {

constexpr int kMostTokens = 160;  // of a tile

// `tokens` are sorted rows of x and become those of y, `inner` is between the two products. Of
// compute capability 9.0; addresses and rows are multiples of 16 bytes.
cudaError_t launch_bfloat16(const Experts& of, const sorting::Tables& tables, void* tokens,
                            void* inner, cudaStream_t stream);
cudaError_t launch_float16(const Experts& of, const sorting::Tables& tables, void* tokens,
                           void* inner, cudaStream_t stream);

}  // namespace moe::hopper
