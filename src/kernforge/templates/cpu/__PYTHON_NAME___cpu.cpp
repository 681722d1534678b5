// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on CPUs: a loop that the compiler vectorises. The binding calls run_cpu
// from several threads, each with another range.

#include "__PYTHON_NAME__.h"
#include "kernforge/elementwise.h"

namespace __PYTHON_NAME___kernel {

void run_cpu(const void* x, void* y, double scale, DType dtype, int64_t count) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;  // double for double, otherwise float
    const auto scaled_relu = [factor = static_cast<W>(scale)](W v) {
      return (v < 0 ? 0 : v) * factor;  // a NaN stays one
    };
    kernforge::elementwise<T>(scaled_relu, count, y, x);
  });
}

// [gradient]
void run_cpu_backward(const void* grad, const void* x, void* dx, double scale, DType dtype,
                      int64_t count) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    const auto gradient = [factor = static_cast<W>(scale)](W g, W v) {
      return v > 0 ? g * factor : 0;
    };
    kernforge::elementwise<T>(gradient, count, dx, grad, x);
  });
}

// [end]
}  // namespace __PYTHON_NAME___kernel
