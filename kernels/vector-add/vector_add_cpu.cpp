// SPDX-License-Identifier: Apache-2.0
//
// out = a + b on CPUs.

#include "kernforge/elementwise.h"
#include "vector_add.h"

namespace vector_add {

void add_cpu(DType dtype, const void* a, const void* b, void* out, int64_t n) {
  kernforge::dispatch(
      dtype, [&](auto element) { kernforge::elementwise<decltype(element)>(Add{}, n, out, a, b); });
}

}  // namespace vector_add
