// SPDX-License-Identifier: Apache-2.0
//
// The launchers of hopper_*.cu, one for each type of the elements.

#pragma once

#include "tables.h"

namespace moe::hopper {

constexpr int kMostTokens = 160;       // of a tile
constexpr int kMostFewTokens = 32;     // of one where experts have few
constexpr int kMostScaledTokens = 64;  // of one of weights with factors

constexpr int kFew = 24;  // tokens of an expert

// Whether the time goes to reading weights, and not to products.
inline bool few(const Experts& of) { return of.tokens * of.top <= kFew * of.experts; }

// Whether rows of x are copied to lie side by side by expert, which tensor copies then read with
// fewer instructions. Beside the products of few inner numbers the copy takes too long.
inline bool copies_x(const Experts& of) { return !few(of) && of.inner >= 4096; }

// Whether the second product may begin while the first one runs. Blocks that do not begin together
// share less of what lies in the L2 cache, which counts where an expert has many tiles.
inline bool begins_early(const Experts& of) { return of.tokens * of.top < 512 * of.experts; }

// `tokens` are sorted rows of x and become those of y, `inner` is between the two products. Of
// compute capability 9.0; addresses and rows are multiples of 16 bytes.
cudaError_t launch_bfloat16(const Experts& of, const sorting::Tables& tables, void* tokens,
                            void* inner, cudaStream_t stream);
cudaError_t launch_float16(const Experts& of, const sorting::Tables& tables, void* tokens,
                           void* inner, cudaStream_t stream);

// The same of weights of 8 bits with factors; width and inner are multiples of 16.
cudaError_t launch_scaled_bfloat16(const Experts& of, const sorting::Tables& tables, void* tokens,
                                   void* inner, cudaStream_t stream);
cudaError_t launch_scaled_float16(const Experts& of, const sorting::Tables& tables, void* tokens,
                                  void* inner, cudaStream_t stream);

}  // namespace moe::hopper
