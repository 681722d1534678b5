// SPDX-License-Identifier: Apache-2.0
//
// kernforge/hopper_tiles.cuh for products of fp8, which always have scales.

#include "hopper_table.cuh"

namespace matmul::hopper {
namespace {

template <class Left, class Right, class Out>
cudaError_t launch_types(const Matmul& of, cudaStream_t stream) {
  using K = Kind<Left, Right, Out, Major::kDepth, Major::kDepth>;
  using E = kernforge::hopper::Epilogue<kernforge::hopper::NoActivation, true, Second::kNone>;
  const auto run = [&](auto shape) {
    return kernforge::hopper::launch<K, decltype(shape), E>(given_of(of), {}, stream);
  };
  const int64_t tiles = (of.rows + 127) / 128 * ((of.columns + 255) / 256) * of.matrices;
  if (tiles <= 66) return run(Shape<128, 128, 6, 1, 1>{});
  return run(Shape<128, 256, 4, 2, 1>{});
}

template <class Out>
cudaError_t launch_out(const Matmul& of, cudaStream_t stream) {
  using E4 = kernforge::hopper::float8_e4m3;
  using E5 = kernforge::hopper::float8_e5m2;
  if (of.left == Type::kE4M3) {
    return of.right == Type::kE4M3 ? launch_types<E4, E4, Out>(of, stream)
                                   : launch_types<E4, E5, Out>(of, stream);
  }
  return launch_types<E5, E4, Out>(of, stream);
}

}  // namespace

cudaError_t launch_fp8(const Matmul& of, cudaStream_t stream) {
  return of.out == Type::kFloat16 ? launch_out<__half>(of, stream)
                                  : launch_out<__nv_bfloat16>(of, stream);
}

}  // namespace matmul::hopper
