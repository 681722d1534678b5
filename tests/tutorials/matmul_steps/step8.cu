// SPDX-License-Identifier: Apache-2.0
//
// Step 8: the kernel of kernels/matmul. Blocks stay and take tile after tile, so that results are
// written while the next tile is multiplied; blocks in pairs share what they load; the order of the
// tiles keeps their operands in the L2 cache.
#include "kernforge/hopper_tiles.cuh"

namespace step8 {

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  using namespace kernforge::hopper;
  using T = __nv_bfloat16;
  Given of{};
  of.a = {a, depth, 1, 0}, of.b = {b, 1, columns, 0}, of.c = {c, columns, 0};
  of.rows = rows, of.columns = columns, of.depth = depth, of.matrices = 1;
  using OneTile = Shape<128, 256, 4, 2, 1>;
  kernforge::hopper::launch<Kind<T, T, T, Major::kDepth, Major::kRows>, OneTile, ProductAlone>(of, {}, stream);
}

}  // namespace step8
