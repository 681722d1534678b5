// SPDX-License-Identifier: Apache-2.0
//
// What follows torch's own matrix product, and products of fp8. Half types are computed in float.

#if __has_include(<torch/headeronly/util/Float8_e4m3fn.h>)
#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Float8_e5m2.h>
#else
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#endif

#include <array>
#include <cmath>

#include "kernforge/elementwise.h"
#include "matmul.h"

namespace matmul {
namespace {

template <class W>
W activated(Activation activation, W z) {
  switch (activation) {
    case Activation::kRelu:
      return z < 0 ? W{0} : z;  // NaN stays
    case Activation::kGeluTanh: {
      constexpr W kTwice = 1.5957691216057308, kCubic = 0.044715;
      return z / (1 + std::exp(-kTwice * (z + kCubic * z * z * z)));
    }
    case Activation::kGeluErf:
      return W{0.5} * z * std::erfc(W{-0.7071067811865476} * z);
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    default:
      return z;
  }
}

// What each byte of a type of fp8 stands for.
template <class T>
const float* decoded() {
  static const auto table = [] {
    std::array<float, 256> all{};
    for (int i = 0; i < 256; ++i) {
      all[i] = static_cast<float>(T(static_cast<uint8_t>(i), T::from_bits()));
    }
    return all;
  }();
  return table.data();
}
const float* table_of(Type type) {
  return type == Type::kE4M3 ? decoded<c10::Float8_e4m3fn>() : decoded<c10::Float8_e5m2>();
}

}  // namespace

void finish_cpu(kernforge::DType dtype, void* c, const void* residual, const void* bias,
                Activation activation, int64_t n, int64_t columns) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    T* to = static_cast<T*>(c);
    const T *added = static_cast<const T*>(residual), *of_columns = static_cast<const T*>(bias);
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        W v = static_cast<W>(to[row * columns + i]);
        if (of_columns != nullptr) v += static_cast<W>(of_columns[i]);
        v = activated(activation, v);
        if (added != nullptr) v += static_cast<W>(added[row * columns + i]);
        to[row * columns + i] = static_cast<T>(v);
      }
    }
  });
}

void fp8_rows_cpu(const Matmul& of, int64_t matrix, int64_t first, int64_t last) {
  const float *left = table_of(of.left), *right = table_of(of.right);
  const auto* of_a = static_cast<const uint8_t*>(of.a.data);
  const auto* of_b = static_cast<const uint8_t*>(of.b.data);
  const auto dtype =
      of.out == Type::kFloat16 ? kernforge::DType::kFloat16 : kernforge::DType::kBFloat16;
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    T* c = static_cast<T*>(const_cast<void*>(of.c.data)) + matrix * of.c.matrix_stride;
    for (int64_t row = first; row < last; ++row) {
      for (int64_t column = 0; column < of.columns; ++column) {
        float sum = 0;
        const int64_t a = matrix * of.a.matrix_stride + row * of.a.row_stride;
        const int64_t b = matrix * of.b.matrix_stride + column * of.b.column_stride;
        for (int64_t k = 0; k < of.depth; ++k) {
          sum += left[of_a[a + k * of.a.column_stride]] * right[of_b[b + k * of.b.row_stride]];
        }
        const Extras& extras = of.extras;
        if (extras.scale_b != nullptr) sum *= extras.scale_b[column * extras.scale_b_stride];
        if (extras.scale_a != nullptr) sum *= extras.scale_a[row * extras.scale_a_stride];
        if (extras.bias != nullptr) {
          sum += static_cast<float>(static_cast<const T*>(extras.bias)[column]);
        }
        c[row * of.c.row_stride + column * of.c.column_stride] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace matmul
