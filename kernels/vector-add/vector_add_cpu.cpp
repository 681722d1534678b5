// SPDX-License-Identifier: Apache-2.0
//
// out = a + b on CPUs: plain loops that the compiler vectorises. The half precisions are torch's
// header-only types, which need no torch library.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "vector_add.h"

namespace vector_add {
namespace {

template <class T>
void add(const void* left, const void* right, void* to, int64_t n) {
  const auto* a = static_cast<const T*>(left);
  const auto* b = static_cast<const T*>(right);
  auto* out = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

}  // namespace

void add_cpu(Type type, const void* a, const void* b, void* out, int64_t n) {
  switch (type) {
    case Type::kFloat:
      return add<float>(a, b, out, n);
    case Type::kHalf:
      return add<c10::Half>(a, b, out, n);
    case Type::kBfloat16:
      return add<c10::BFloat16>(a, b, out, n);
    case Type::kDouble:
      return add<double>(a, b, out, n);
  }
}

}  // namespace vector_add
