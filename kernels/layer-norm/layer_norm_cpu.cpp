// SPDX-License-Identifier: Apache-2.0
//
// Plain loops that the compiler vectorises. Half types are computed in float; a sum is that of
// sixteen sums side by side, always in the same order.

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernforge/elementwise.h"
#include "layer_norm.h"

namespace layer_norm {
namespace {

using kernforge::widened_t;

constexpr int kLines = 16;

template <class W, class Of>
W sum_of(int64_t n, const Of& of) {
  W lines[kLines] = {};
  int64_t i = 0;
  for (; i + kLines <= n; i += kLines) {
    for (int k = 0; k < kLines; ++k) lines[k] += of(i + k);
  }
  for (; i < n; ++i) lines[i % kLines] += of(i);
  W sum = 0;
  for (const W line : lines) sum += line;
  return sum;
}

// weight or bias in the precision that is computed in; `none` where there is no such tensor.
template <class T>
std::vector<widened_t<T>> widened(const void* from, int64_t n, bool is_float, widened_t<T> none) {
  std::vector<widened_t<T>> to(n, none);
  if (from == nullptr) return to;
  if (is_float) {
    std::copy_n(static_cast<const float*>(from), n, to.begin());
  } else {
    const auto* own = static_cast<const T*>(from);
    std::transform(own, own + n, to.begin(), [](T v) { return static_cast<widened_t<T>>(v); });
  }
  return to;
}

template <class T>
void normalize(const Forward& of, int64_t first, int64_t last) {
  using W = widened_t<T>;
  const int64_t n = of.width;
  const auto weight = widened<T>(of.weight, n, of.float_weights, 1);
  const auto bias = widened<T>(of.bias, n, of.float_weights, 0);
  std::vector<W> row(n);
  for (int64_t r = first; r < last; ++r) {
    const T* x = static_cast<const T*>(of.x) + r * of.x_stride;
    if (of.residual == nullptr) {
      for (int64_t i = 0; i < n; ++i) row[i] = static_cast<W>(x[i]);
    } else {
      const T* residual = static_cast<const T*>(of.residual) + r * of.residual_stride;
      T* sum = static_cast<T*>(of.sum) + r * n;
      for (int64_t i = 0; i < n; ++i) {
        sum[i] = static_cast<T>(static_cast<W>(x[i]) + static_cast<W>(residual[i]));
      }
      for (int64_t i = 0; i < n; ++i) row[i] = static_cast<W>(sum[i]);
    }
    const W mean = of.rms ? 0 : sum_of<W>(n, [&](int64_t i) { return row[i]; }) / static_cast<W>(n);
    const W squares = sum_of<W>(n, [&](int64_t i) { return (row[i] - mean) * (row[i] - mean); });
    const W inverse = 1 / std::sqrt(squares / static_cast<W>(n) + static_cast<W>(of.eps));
    T* y = static_cast<T*>(of.y) + r * n;
    for (int64_t i = 0; i < n; ++i) {
      y[i] = static_cast<T>((row[i] - mean) * inverse * weight[i] + bias[i]);
    }
    if (of.statistics == nullptr) continue;
    W* statistics = static_cast<W*>(of.statistics) + r;
    if (!of.rms) {
      *statistics = mean;
      statistics += of.rows;
    }
    *statistics = inverse;
  }
}

template <class T>
void input_gradient(const Backward& of, int64_t first, int64_t last) {
  using W = widened_t<T>;
  const int64_t n = of.width;
  const auto weight = widened<T>(of.weight, n, of.float_weights, 1);
  std::vector<W> g(n), normal(n);
  for (int64_t r = first; r < last; ++r) {
    const T* x = static_cast<const T*>(of.x) + r * n;
    const T* dy = static_cast<const T*>(of.dy) + r * n;
    const auto* statistics = static_cast<const W*>(of.statistics) + r;
    const W mean = of.rms ? 0 : *statistics, inverse = statistics[of.rms ? 0 : of.rows];
    for (int64_t i = 0; i < n; ++i) {
      g[i] = static_cast<W>(dy[i]) * weight[i];
      normal[i] = (static_cast<W>(x[i]) - mean) * inverse;
    }
    const W mean_g = of.rms ? 0 : sum_of<W>(n, [&](int64_t i) { return g[i]; }) / static_cast<W>(n);
    const W mean_gn = sum_of<W>(n, [&](int64_t i) { return g[i] * normal[i]; }) / static_cast<W>(n);
    T* dx = static_cast<T*>(of.dx) + r * n;
    for (int64_t i = 0; i < n; ++i) g[i] = inverse * (g[i] - mean_g - normal[i] * mean_gn);
    if (of.dsum != nullptr) {
      const T* dsum = static_cast<const T*>(of.dsum) + r * n;
      for (int64_t i = 0; i < n; ++i) g[i] += static_cast<W>(dsum[i]);
    }
    for (int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(g[i]);
  }
}

template <class T>
void weight_gradient(const Backward& of, int64_t first, int64_t last) {
  using W = widened_t<T>;
  const int64_t n = last - first;
  std::vector<double> dweight(n), dbias(n);
  const auto* statistics = static_cast<const W*>(of.statistics);
  for (int64_t r = 0; r < of.rows; ++r) {
    const T* x = static_cast<const T*>(of.x) + r * of.width + first;
    const T* dy = static_cast<const T*>(of.dy) + r * of.width + first;
    const W mean = of.rms ? 0 : statistics[r], inverse = statistics[of.rms ? r : of.rows + r];
    for (int64_t i = 0; i < n; ++i) {
      const W d = static_cast<W>(dy[i]);
      dweight[i] += d * ((static_cast<W>(x[i]) - mean) * inverse);
      dbias[i] += d;
    }
  }
  const auto leave = [&](const std::vector<double>& sums, void* to) {
    if (to == nullptr) return;
    for (int64_t i = 0; i < n; ++i) {
      if (of.float_weights) {
        static_cast<float*>(to)[first + i] = static_cast<float>(sums[i]);
      } else {
        static_cast<T*>(to)[first + i] = static_cast<T>(static_cast<W>(sums[i]));
      }
    }
  };
  leave(dweight, of.dweight), leave(dbias, of.dbias);
}

}  // namespace

void forward_cpu(DType dtype, const Forward& of, int64_t first, int64_t last) {
  kernforge::dispatch(dtype, [&](auto element) { normalize<decltype(element)>(of, first, last); });
}

void input_gradient_cpu(DType dtype, const Backward& of, int64_t first, int64_t last) {
  kernforge::dispatch(dtype,
                      [&](auto element) { input_gradient<decltype(element)>(of, first, last); });
}

void weight_gradient_cpu(DType dtype, const Backward& of, int64_t first, int64_t last) {
  kernforge::dispatch(dtype,
                      [&](auto element) { weight_gradient<decltype(element)>(of, first, last); });
}

}  // namespace layer_norm
