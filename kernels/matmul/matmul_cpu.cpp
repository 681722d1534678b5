// SPDX-License-Identifier: Apache-2.0
//
// What follows torch's own matrix product. Half types are computed in float.

#include "kernforge/elementwise.h"
#include "matmul.h"

namespace matmul {
namespace {

template <class In, class Out>
void finish_lines(const Matmul& of, const In* product, int64_t first, int64_t last) {
  using W = kernforge::widened_t<Out>;
  const Extras& extras = of.extras;
  const auto* bias = static_cast<const Out*>(extras.bias);
  for (int64_t line = first; line < last; ++line) {
    const int64_t matrix = line / of.rows, row = line % of.rows;
    const auto place = [&](const Matrices& m) {
      return matrix * m.matrix_stride + row * m.row_stride;
    };
    const In* from = product + line * of.columns;
    Out* to = static_cast<Out*>(const_cast<void*>(of.c.data)) + place(of.c);
    const auto* added = static_cast<const Out*>(extras.residual.data);
    if (added != nullptr) added += place(extras.residual);
    for (int64_t i = 0; i < of.columns; ++i) {
      W v = static_cast<W>(from[i]);
      if (extras.scale_a != nullptr) {  // and of b, of fp8
        v *= extras.scale_b[i * extras.scale_b_stride];
        v *= extras.scale_a[row * extras.scale_a_stride];
      }
      if (bias != nullptr) v += static_cast<W>(bias[i]);
      v = activated(extras.activation, v);
      if (added != nullptr) v += static_cast<W>(added[i * extras.residual.column_stride]);
      to[i * of.c.column_stride] = static_cast<Out>(v);
    }
  }
}

}  // namespace

void finish_cpu(const Matmul& of, const void* product, int64_t first, int64_t last) {
  kernforge::dispatch(dtype_of(of.out), [&](auto element) {
    using T = decltype(element);
    if (is_fp8(of.left)) {
      finish_lines<float, T>(of, static_cast<const float*>(product), first, last);
    } else {
      finish_lines<T, T>(of, static_cast<const T*>(product), first, last);
    }
  });
}

}  // namespace matmul
