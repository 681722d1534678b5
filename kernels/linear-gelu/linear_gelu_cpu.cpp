// SPDX-License-Identifier: Apache-2.0
//
// GELU after torch's own matrix product, and its slope. Half types are computed in float.

#include "formula.h"
#include "kernforge/elementwise.h"
#include "linear_gelu.h"

namespace linear_gelu {
namespace {

template <Formula kFormula>
void gelu_of(DType dtype, const void* z, void* y, int64_t n) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    kernforge::elementwise<T>([](auto z) { return gelu<kFormula>(z); }, n, y, z);
  });
}

template <Formula kFormula>
void slope_of(DType dtype, const void* dy, const void* z, void* dz, int64_t n) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    kernforge::elementwise<T>([](auto d, auto at) { return d * slope<kFormula>(at); }, n, dz, dy,
                              z);
  });
}

}  // namespace

void gelu_cpu(DType dtype, Formula formula, const void* z, void* y, int64_t n) {
  if (formula == Formula::kTanh) return gelu_of<Formula::kTanh>(dtype, z, y, n);
  gelu_of<Formula::kErf>(dtype, z, y, n);
}

void slope_cpu(DType dtype, Formula formula, const void* dy, const void* z, void* dz, int64_t n) {
  if (formula == Formula::kTanh) return slope_of<Formula::kTanh>(dtype, dy, z, dz, n);
  slope_of<Formula::kErf>(dtype, dy, z, dz, n);
}

}  // namespace linear_gelu
