// SPDX-License-Identifier: Apache-2.0
//
// Routing, SwiGLU and the weighted sum on a CPU, one row after the other; the products between them
// are torch's own. Half types are computed in float.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "kernforge/elementwise.h"
#include "moe.h"
#include "slopes.h"

namespace moe {
namespace {

// NaN is the largest, as for torch.topk; of equal ones the first.
template <class W>
bool before(const W* choices, int a, int b) {
  const bool a_nan = std::isnan(choices[a]), b_nan = std::isnan(choices[b]);
  if (a_nan || b_nan) return a_nan && (!b_nan || a < b);
  return choices[a] > choices[b] || (choices[a] == choices[b] && a < b);
}

template <class T, class W = kernforge::widened_t<T>>
void route_token(const Route& of, const T* logits, W* weights, int32_t* ids) {
  const int n = of.experts;
  std::vector<W> scores(n), choices(n);
  for (int e = 0; e < n; ++e) scores[e] = static_cast<W>(logits[e]);
  if (of.sigmoid) {
    for (W& v : scores) v = 1 / (1 + std::exp(-v));
  } else {
    const W most = *std::max_element(scores.begin(), scores.end());
    W all = 0;
    for (W& v : scores) all += v = std::exp(v - most);
    for (W& v : scores) v /= all;
  }
  for (int e = 0; e < n; ++e) choices[e] = scores[e] + (of.bias == nullptr ? 0 : of.bias[e]);

  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  if (of.groups > 1) {
    const int size = n / of.groups;
    std::vector<W> sums(of.groups);
    std::vector<int> groups(of.groups);
    std::iota(groups.begin(), groups.end(), 0);
    for (int g = 0; g < of.groups; ++g) {
      W best[2] = {-std::numeric_limits<W>::infinity(), -std::numeric_limits<W>::infinity()};
      for (int e = g * size; e < (g + 1) * size; ++e) {
        if (choices[e] > best[0]) {
          best[1] = best[0], best[0] = choices[e];
        } else if (choices[e] > best[1]) {
          best[1] = choices[e];
        }
      }
      sums[g] = size > 1 ? best[0] + best[1] : best[0];
    }
    std::sort(groups.begin(), groups.end(),
              [&](int a, int b) { return before(sums.data(), a, b); });
    std::vector<bool> open(of.groups);
    for (int i = 0; i < of.top_groups; ++i) open[groups[i]] = true;
    order.erase(std::remove_if(order.begin(), order.end(), [&](int e) { return !open[e / size]; }),
                order.end());
  }
  std::partial_sort(order.begin(), order.begin() + of.top, order.end(),
                    [&](int a, int b) { return before(choices.data(), a, b); });
  W all = of.sigmoid ? W(1e-20) : W(0);
  for (int j = 0; j < of.top; ++j) all += scores[order[j]];
  for (int j = 0; j < of.top; ++j) {
    ids[j] = order[j];
    weights[j] = scores[order[j]] / (of.normalize ? all : W(1)) * static_cast<W>(of.scale);
  }
}

}  // namespace

void route_cpu(DType dtype, const Route& of, int64_t begin, int64_t end) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    for (int64_t t = begin; t < end; ++t) {
      using W = kernforge::widened_t<T>;
      route_token(of, static_cast<const T*>(of.logits) + t * of.experts,
                  static_cast<W*>(of.weights) + t * of.top, of.ids + t * of.top);
    }
  });
}

void gated_cpu(DType dtype, const void* both, void* out, int64_t rows, int64_t inner) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    const auto silu_times = [](auto gate, auto up) { return gate / (1 + std::exp(-gate)) * up; };
    for (int64_t r = 0; r < rows; ++r) {
      const T* gate = static_cast<const T*>(both) + r * 2 * inner;
      kernforge::elementwise<T>(silu_times, inner, static_cast<T*>(out) + r * inner, gate,
                                gate + inner);
    }
  });
}

void widen_cpu(DType dtype, const void* bytes, const float* factors, void* out, int64_t rows,
               int64_t columns) {
  float values[256];
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> 3 & 15, mantissa = i & 7;
    float v = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((i & 0x7F) == 0x7F) v = std::numeric_limits<float>::quiet_NaN();
    values[i] = i & 0x80 ? -v : v;
  }
  const int64_t across = (columns + kFactorBlock - 1) / kFactorBlock;
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    for (int64_t r = 0; r < rows; ++r) {
      const auto* from = static_cast<const uint8_t*>(bytes) + r * columns;
      const float* of_row = factors + r / kFactorBlock * across;
      T* to = static_cast<T*>(out) + r * columns;
      for (int64_t c = 0; c < columns; ++c) {
        to[c] = static_cast<T>(values[from[c]] * of_row[c / kFactorBlock]);
      }
    }
  });
}

void add_weighted_cpu(DType dtype, const void* rows, const int64_t* at, const void* weights,
                      void* y, int64_t top, int64_t width) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    std::vector<W> sums(width);
    for (int64_t j = 0; j < top; ++j) {
      if (at[j] < 0) continue;
      const T* row = static_cast<const T*>(rows) + at[j] * width;
      const W weight = static_cast<const W*>(weights)[j];
      for (int64_t c = 0; c < width; ++c) sums[c] += weight * static_cast<W>(row[c]);
    }
    for (int64_t c = 0; c < width; ++c) static_cast<T*>(y)[c] = static_cast<T>(sums[c]);
  });
}

void sort_cpu(const Sort& of) {
  const int64_t count = of.tokens * of.top;
  const auto inside = [&](int64_t i) { return of.ids[i] >= 0 && of.ids[i] < of.experts; };
  std::vector<int32_t> next(of.experts);
  for (int64_t i = 0; i < count; ++i) {
    if (inside(i)) ++next[of.ids[i]];
  }
  int32_t row = 0;
  for (int64_t e = 0; e < of.experts; ++e) {
    const int32_t own = next[e];
    next[e] = row;
    of.ends[e] = row += (own + kPad - 1) / kPad * kPad;
  }
  std::fill_n(of.assignments, rows_of(count, of.experts), -1);
  for (int64_t i = 0; i < count; ++i) {
    of.positions[i] = inside(i) ? next[of.ids[i]]++ : -1;
    if (of.positions[i] >= 0) of.assignments[of.positions[i]] = static_cast<int32_t>(i);
  }
}

void spread_cpu(DType dtype, const Spread& of, int64_t begin, int64_t end) {
  kernforge::dispatch(dtype, [&](auto element) {
    const int64_t bytes = of.width * static_cast<int64_t>(sizeof(element));
    const auto copy = [&](const void* from, void* to, int64_t row) {
      char* own = static_cast<char*>(to) + row * bytes;
      if (of.assignments[row] < 0) {
        std::memset(own, 0, bytes);
      } else {
        std::memcpy(own, static_cast<const char*>(from) + of.assignments[row] / of.top * bytes,
                    bytes);
      }
    };
    for (int64_t row = begin; row < end; ++row) {
      copy(of.x, of.sorted_x, row);
      copy(of.grad, of.sorted_grad, row);
    }
  });
}

void gate_backward_cpu(DType dtype, const GateBackward& of, int64_t begin, int64_t end) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    for (int64_t row = begin; row < end; ++row) {
      T* dgate = static_cast<T*>(of.dboth) + row * 2 * of.inner;
      T* weighted = static_cast<T*>(of.weighted) + row * of.inner;
      double sum = 0;
      if (of.assignments[row] < 0) {
        std::fill_n(dgate, 2 * of.inner, static_cast<T>(0.f));
        std::fill_n(weighted, of.inner, static_cast<T>(0.f));
      } else {
        const T* gate = static_cast<const T*>(of.both) + row * 2 * of.inner;
        const T* plain = static_cast<const T*>(of.plain) + row * of.inner;
        const W weight = static_cast<const W*>(of.weights)[of.assignments[row]];
        for (int64_t c = 0; c < of.inner; ++c) {
          const W z = static_cast<W>(gate[c]), d = static_cast<W>(plain[c]);
          const auto slopes =
              slopes_of<W>(z, static_cast<W>(gate[of.inner + c]), 1 / (1 + std::exp(-z)));
          // Rounded, as the forward pass has it.
          const W value = static_cast<W>(static_cast<T>(slopes.value));
          sum += static_cast<double>(d) * value;
          weighted[c] = static_cast<T>(weight * value);
          dgate[c] = static_cast<T>(d * weight * slopes.gate);
          dgate[of.inner + c] = static_cast<T>(d * weight * slopes.up);
        }
      }
      static_cast<W*>(of.dweights)[row] = static_cast<W>(sum);
    }
  });
}

void sum_rows_cpu(DType dtype, const SumRows& of, int64_t begin, int64_t end) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    using W = kernforge::widened_t<T>;
    std::vector<W> sums(of.width);
    for (int64_t t = begin; t < end; ++t) {
      std::fill(sums.begin(), sums.end(), W(0));
      for (int64_t i = t * of.top; i < (t + 1) * of.top; ++i) {
        const int64_t row = of.positions[i];
        static_cast<W*>(of.dweights)[i] =
            row < 0 ? W(0) : static_cast<const W*>(of.row_dweights)[row];
        if (row < 0) continue;
        const T* own = static_cast<const T*>(of.rows) + row * of.width;
        for (int64_t c = 0; c < of.width; ++c) sums[c] += static_cast<W>(own[c]);
      }
      T* y = static_cast<T*>(of.y) + t * of.width;
      for (int64_t c = 0; c < of.width; ++c) y[c] = static_cast<T>(sums[c]);
    }
  });
}

}  // namespace moe
