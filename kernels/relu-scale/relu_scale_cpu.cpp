// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number on CPUs; formulas in relu_scale.h.

#include "kernforge/elementwise.h"
#include "relu_scale.h"

namespace relu_scale {

void forward_cpu(DType dtype, const void* x, void* y, double alpha, int64_t n) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    kernforge::elementwise<T>(Forward<W>{static_cast<W>(alpha)}, n, y, x);
  });
}

void backward_cpu(DType dtype, const void* dy, const void* x, void* dx, double alpha, int64_t n) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    kernforge::elementwise<T>(Backward<W>{static_cast<W>(alpha)}, n, dx, dy, x);
  });
}

}  // namespace relu_scale
