// SPDX-License-Identifier: Apache-2.0
//
// ReLU times a number on CPUs: plain loops that the compiler vectorises; formulas in relu_scale.h.
// The half precisions are torch's header-only types, which need no torch library.

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include "relu_scale.h"

namespace relu_scale {
namespace {

template <class T>
struct Widened {
  using type = float;
};
template <>
struct Widened<double> {
  using type = double;
};
template <class T>
using widened_t = typename Widened<T>::type;

template <class T>
void forward(const void* from, void* to, double factor, int64_t n) {
  const auto* x = static_cast<const T*>(from);
  auto* y = static_cast<T*>(to);
  const auto alpha = static_cast<widened_t<T>>(factor);
  for (int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<widened_t<T>>(x[i]);
    y[i] = static_cast<T>((v < 0 ? 0 : v) * alpha);
  }
}

template <class T>
void backward(const void* gradient, const void* from, void* to, double factor, int64_t n) {
  const auto* dy = static_cast<const T*>(gradient);
  const auto* x = static_cast<const T*>(from);
  auto* dx = static_cast<T*>(to);
  const auto alpha = static_cast<widened_t<T>>(factor);
  for (int64_t i = 0; i < n; ++i) {
    const auto scaled = static_cast<widened_t<T>>(dy[i]) * alpha;
    dx[i] = static_cast<T>(static_cast<widened_t<T>>(x[i]) <= 0 ? 0 : scaled);
  }
}

}  // namespace

void forward_cpu(Type type, const void* x, void* y, double alpha, int64_t n) {
  switch (type) {
    case Type::kFloat:
      return forward<float>(x, y, alpha, n);
    case Type::kHalf:
      return forward<c10::Half>(x, y, alpha, n);
    case Type::kBfloat16:
      return forward<c10::BFloat16>(x, y, alpha, n);
    case Type::kDouble:
      return forward<double>(x, y, alpha, n);
  }
}

void backward_cpu(Type type, const void* dy, const void* x, void* dx, double alpha, int64_t n) {
  switch (type) {
    case Type::kFloat:
      return backward<float>(dy, x, dx, alpha, n);
    case Type::kHalf:
      return backward<c10::Half>(dy, x, dx, alpha, n);
    case Type::kBfloat16:
      return backward<c10::BFloat16>(dy, x, dx, alpha, n);
    case Type::kDouble:
      return backward<double>(dy, x, dx, alpha, n);
  }
}

}  // namespace relu_scale
