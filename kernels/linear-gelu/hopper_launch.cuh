// SPDX-License-Identifier: Apache-2.0
//
// Which kernel of kernforge/hopper_tiles.cuh computes y = gelu(x w^T + b).

#pragma once

#include "gelu.cuh"
#include "hopper.h"
#include "kernforge/hopper_tiles.cuh"

namespace linear_gelu::hopper {

template <class T>
cudaError_t launch_type(Formula formula, const Linear& of, cudaStream_t stream) {
  using kernforge::hopper::Epilogue;
  using kernforge::hopper::Major;
  using kernforge::hopper::Second;
  using K = kernforge::hopper::Kind<T, T, T, Major::kDepth, Major::kDepth>;
  const kernforge::hopper::Given given{{of.x, of.x_stride, 1, 0},
                                       {of.w, of.w_stride, 1, 0},
                                       {of.y, of.columns, 0},
                                       {of.z, of.columns, 0},
                                       of.rows,
                                       of.columns,
                                       of.depth,
                                       1,
                                       {of.bias, nullptr, nullptr, 0, 0},
                                       {}};
  const auto run = [&](auto chosen, auto second) {
    using A = Activation<T, decltype(chosen)::value, Sigmoid::kTanh>;
    using E = Epilogue<A, false, decltype(second)::value>;
    return kernforge::hopper::with_shape(of.rows, of.columns, 1, [&](auto shape) {
      return kernforge::hopper::launch<K, decltype(shape), E>(given, A{}, stream);
    });
  };
  const auto of_formula = [&](auto chosen) {
    return of.z == nullptr ? run(chosen, std::integral_constant<Second, Second::kNone>{})
                           : run(chosen, std::integral_constant<Second, Second::kKept>{});
  };
  return formula == Formula::kTanh ? of_formula(std::integral_constant<Formula, Formula::kTanh>{})
                                   : of_formula(std::integral_constant<Formula, Formula::kErf>{});
}

}  // namespace linear_gelu::hopper
