// SPDX-License-Identifier: Apache-2.0
//
// Step 8: the kernel of kernels/matmul. Blocks stay and take tile after tile, so that results are
// written while the next tile is multiplied; blocks in pairs share what they load; the order of the
// tiles keeps their operands in the L2 cache.
#include "hopper_launch.cuh"

namespace step8 {

void launch(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int rows, int columns,
            int depth, cudaStream_t stream) {
  using namespace matmul;
  using namespace matmul::hopper;
  using T = __nv_bfloat16;
  Matmul of{};
  of.a = {a, depth, 1, 0}, of.b = {b, columns, 1, 0}, of.c = {c, columns, 1, 0};
  of.rows = rows, of.columns = columns, of.depth = depth, of.matrices = 1;
  of.left = of.right = of.out = Type::kBFloat16;
  using OneTile = Shape<128, 256, 4, 2, 1>;
  hopper::launch<Kind<T, T, T, Major::kDepth, Major::kRows>, OneTile, Epilogue::kNone>(of, {8, true, 4},
                                                                              stream);
}

}  // namespace step8
