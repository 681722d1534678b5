// SPDX-License-Identifier: Apache-2.0
//
// The gradients. With n = (x - mean) * inverse and g = dy * weight,
//
//   dx = inverse * (g - mean of g - n * mean of g * n)   RMSNorm: without the mean of g
//   dweight = sum of dy * n over rows,  dbeta = sum of dy over rows
//
// `gradients` reads x and dy once: a block takes every so many rows, keeps its parts of dweight and
// dbias in registers, and writes them in the end; `sum_parts` adds those of the blocks. No atomics:
// the bits are the same in every run on one kind of GPU, whose multiprocessors count the blocks.

#pragma once

#include "kernforge/pdl.cuh"
#include "layer_norm.h"
#include "ring.cuh"
#include "rows.cuh"

namespace layer_norm {

// Where a block leaves its parts: [gridDim.x, width] of dweight, and after them of dbias.
struct Parts {
  Backward of;
  float* parts;
};

// kLength: elements of a vector of 16 bytes, or 1. kAdd: there is dsum. kStages: how many rows are
// in shared memory or on their way there; 0 without the copy engine, where a thread asks for its
// part of the next row before it computes one.
template <class C, class T, int kLength, bool kAdd, int kStages>
static __global__ void __launch_bounds__(C::kThreads, C::kBlocks) gradients(const Parts given) {
  constexpr int kLanes = C::kLanes, kVectors = C::kVectors;
  constexpr bool kCopied = kStages > 0;
  using V = Vector<T, kLength>;
  static_assert(!kCopied || C::kRows == 1, "a stage is one row of each tensor");
  __shared__ Shared<C, 2> shared;
  kernforge::grid_dependency_synchronize();
  const Backward& of = given.of;
  const int lane = threadIdx.x % kLanes, vectors = static_cast<int>(of.width) / kLength;
  const float scale = 1.f / static_cast<float>(of.width);
  const auto* x = static_cast<const T*>(of.x);
  const auto* dy = static_cast<const T*>(of.dy);
  const auto* dsum = static_cast<const T*>(of.dsum);
  const auto* statistics = static_cast<const float*>(of.statistics);
  const int64_t step = int64_t{gridDim.x} * C::kRows;

  struct Row {
    V x[kVectors], dy[kVectors], dsum[kAdd ? kVectors : 1];
    float mean, inverse;
  };
  const auto fetch_statistics = [&](Row& to, int64_t row) {
    const bool there = row < of.rows;
    to.mean = there && !of.rms ? statistics[row] : 0;
    to.inverse = there ? statistics[of.rms ? row : of.rows + row] : 0;
  };
  const auto fetch = [&](Row& to, int64_t row) {
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = i * kLanes + lane;
      to.x[i] = {}, to.dy[i] = {};
      if (row < of.rows && at < vectors) {
        to.x[i] = load_once<kLength>(x + row * of.width + at * kLength);
        to.dy[i] = load_once<kLength>(dy + row * of.width + at * kLength);
      }
    }
    fetch_statistics(to, row);
  };
  // weight in registers, or from the L1 cache for each row, where registers hold the next row
  float kept[kCopied ? kVectors : 1][kLength];
  const auto weights = [&](float (&to)[kLength], int at) {
#pragma unroll
    for (int j = 0; j < kLength; ++j) to[j] = 1;
    if (of.weight != nullptr && at < vectors) {
      load_weights<T>(to, of.weight, at * kLength, of.float_weights);
    }
  };
  float dweight[kVectors][kLength] = {}, dbias[kVectors][kLength] = {};
  int turn = 0;
  // `read` is called when all threads have what they need of the row
  const auto finish = [&](Row& in, int64_t row, const auto& read) {
    if constexpr (kAdd && !kCopied) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int at = i * kLanes + lane;
        in.dsum[i] = {};
        if (row < of.rows && at < vectors) {
          in.dsum[i] = load_once<kLength>(dsum + row * of.width + at * kLength);
        }
      }
    }
    const float shift = -in.mean * in.inverse;
    float sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float loaded[kLength];
      if constexpr (!kCopied) weights(loaded, i * kLanes + lane);
      const auto& weight = kCopied ? kept[kCopied ? i : 0] : loaded;
      float x[kLength], dy[kLength];
      unpack<T>(x, in.x[i]), unpack<T>(dy, in.dy[i]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const float d = dy[j];
        const float n = fmaf(x[j], in.inverse, shift);
        const float g = d * weight[j];
        sums[0] += g;
        sums[1] = fmaf(g, n, sums[1]);
        dweight[i][j] = fmaf(d, n, dweight[i][j]);
        dbias[i][j] += d;
      }
    }
    stay_packed<T>(in.x);
    stay_packed<T>(in.dy);
    sum_of_row<C>(sums, shared, turn);
    turn ^= 1;
    read();
    if (row >= of.rows) return;
    const float less = of.rms ? 0 : -in.inverse * sums[0] * scale;
    const float slope = -in.inverse * sums[1] * scale;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      const int at = i * kLanes + lane;
      if (at >= vectors) break;
      float loaded[kLength];
      if constexpr (!kCopied) weights(loaded, at);
      const auto& weight = kCopied ? kept[kCopied ? i : 0] : loaded;
      float x[kLength], dy[kLength], dsum[kLength] = {};
      unpack<T>(x, in.x[i]), unpack<T>(dy, in.dy[i]);
      if constexpr (kAdd) unpack<T>(dsum, in.dsum[i]);
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const float g = dy[j] * weight[j];
        const float n = fmaf(x[j], in.inverse, shift);
        x[j] = fmaf(n, slope, fmaf(g, in.inverse, less));
        if constexpr (kAdd) x[j] += dsum[j];
      }
      reinterpret_cast<V*>(static_cast<T*>(of.dx) + row * of.width)[at] = pack<T>(x);
    }
  };
  int64_t row = int64_t{blockIdx.x} * C::kRows + threadIdx.x / kLanes;
  if constexpr (kCopied) {
    extern __shared__ uint4 memory[];
    __shared__ uint64_t full[kStages];
    Ring<kAdd ? 3 : 2, kStages> ring(memory, full, static_cast<uint32_t>(of.width * sizeof(T)));
    const auto ask = [&](int stage, int64_t row) {
      if (threadIdx.x != 0 || row >= of.rows) return;
      if constexpr (kAdd) {
        ring.ask(stage, {x + row * of.width, dy + row * of.width, dsum + row * of.width});
      } else {
        ring.ask(stage, {x + row * of.width, dy + row * of.width});
      }
    };
    for (int s = 0; s < kStages; ++s) ask(s, row + s * step);
#pragma unroll
    for (int i = 0; i < kVectors; ++i) weights(kept[i], i * kLanes + lane);
    for (; row < of.rows; row += step) {
      Row now;
      fetch_statistics(now, row);
      ring.wait();
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int at = i * kLanes + lane;
        now.x[i] = {}, now.dy[i] = {};
        if (at < vectors)
          now.x[i] = ring.template read<T>(0, at), now.dy[i] = ring.template read<T>(1, at);
        if constexpr (kAdd) {
          if (at < vectors) now.dsum[i] = ring.template read<T>(2, at);
        }
      }
      finish(now, row, [&] {
        ask(ring.stage, row + kStages * step);
        ring.advance();
      });
    }
  } else {
    Row now;
    fetch(now, row);
    // As often in all threads of a warp, which may have several rows.
    for (int64_t first = int64_t{blockIdx.x} * C::kRows; first < of.rows; first += step) {
      Row next;
      fetch(next, row + step);
      finish(now, row, [] {});
      now = next;
      row += step;
    }
  }

  const auto leave = [&](const float (&sums)[kVectors][kLength], float* to) {
    constexpr int kWidth = kLanes * kVectors * kLength;
    __shared__ float others[C::kRows > 1 ? C::kRows * kWidth : 1];
    const int line = threadIdx.x / kLanes;
    if constexpr (C::kRows > 1) {
      __syncthreads();  // others may still read what was left before
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
#pragma unroll
        for (int j = 0; j < kLength; ++j) {
          others[line * kWidth + (i * kLength + j) * kLanes + lane] = sums[i][j];
        }
      }
      __syncthreads();
      // Each thread one of every kThreads columns, in the order of the lines.
      for (int c = threadIdx.x; c < of.width; c += C::kThreads) {
        const int vector = c / kLength, i = vector / kLanes, l = vector % kLanes;
        float sum = 0;
#pragma unroll
        for (int k = 0; k < C::kRows; ++k) {
          sum += others[k * kWidth + (i * kLength + c % kLength) * kLanes + l];
        }
        to[c] = sum;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int at = i * kLanes + lane;
        if (at >= vectors) break;
        if constexpr (kLength == 1) {
          to[at] = sums[i][0];
        } else {
#pragma unroll
          for (int j = 0; j < kLength; j += 4) {
            reinterpret_cast<float4*>(to + at * kLength)[j / 4] =
                make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
          }
        }
      }
    }
  };
  float* part = given.parts + blockIdx.x * of.width;
  if (of.dweight != nullptr) leave(dweight, part);
  if (of.dbias != nullptr) {
    leave(dbias, part + (of.dweight == nullptr ? 0 : gridDim.x * of.width));
  }
}

// For double, or for rows that are too wide for registers: kLanes threads a row, which read twice
// what registers do not hold.
template <class T, int kLength, int kLanes>
static __global__ void __launch_bounds__(Any<kLanes>::kThreads, kAnyBlocks<T, kLanes>)
    input_gradient(const Backward of) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kLength>;
  constexpr int kVectors = kHeld / kLength, kPiece = kLanes * kLength;
  kernforge::grid_dependency_synchronize();
  __shared__ W memory[2][Any<kLanes>::kWarps];
  const int lane = threadIdx.x % kLanes;
  const int64_t row = int64_t{blockIdx.x} * Any<kLanes>::kRows + threadIdx.x / kLanes;
  const bool there = row < of.rows;
  const int64_t width = there ? of.width : 0;  // all threads of a warp form the sums
  const int64_t first = row * of.width;
  const auto* statistics = static_cast<const W*>(of.statistics);
  const W mean = there && !of.rms ? statistics[row] : 0;
  const W inverse = there ? statistics[of.rms ? row : of.rows + row] : 0;
  const auto* x = static_cast<const T*>(of.x) + first;
  const auto* dy = static_cast<const T*>(of.dy) + first;
  struct Pair {
    V x, dy;
  };
  // Calls run(element, vectors) for those of the thread that are at `first` and behind it.
  const auto each = [&](int64_t first, auto& pairs, const auto& run) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pairs) / sizeof(Pair)); ++i) {
      if (first + i * kPiece >= width) break;
      const int64_t at = first + i * kPiece + lane * kLength;
      if (at < width) run(at, pairs[i]);
    }
  };
  const auto load = [&](int64_t at, Pair& to) {
    to = {*reinterpret_cast<const V*>(x + at), *reinterpret_cast<const V*>(dy + at)};
  };
  Pair held[kVectors];
  each(0, held, load);
  // Calls run(element, vectors) for what is held and then for the others, which it reads again.
  const auto all = [&](const auto& run) {
    each(0, held, run);
    constexpr int kBatch = kVectors > 2 ? kVectors / 4 : 1;
    for (int64_t behind = kVectors * kPiece; behind < width; behind += kBatch * kPiece) {
      Pair others[kBatch];
      each(behind, others, load);
      each(behind, others, run);
    }
  };
  // n and g of an element
  const auto n_of = [&](const Pair& in, int j) {
    return (kernforge::widen(in.x.at[j]) - mean) * inverse;
  };
  const auto g_of = [&](const Pair& in, int64_t at, int j) {
    return kernforge::widen(in.dy.at[j]) * weight_at<T>(of.weight, at + j, of.float_weights, 1);
  };
  W sums[2] = {0, 0};
  all([&](int64_t at, const Pair& in) {
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const W g = g_of(in, at, j);
      sums[0] += g, sums[1] += g * n_of(in, j);
    }
  });
#pragma unroll
  for (int s = 0; s < 2; ++s) {
    sums[s] = sum_of_any<kLanes>(sums[s], memory[s]) / static_cast<W>(of.width);
  }
  if (of.rms) sums[0] = 0;
  all([&](int64_t at, const Pair& in) {
    V more = {}, out;
    if (of.dsum != nullptr) {
      more = *reinterpret_cast<const V*>(static_cast<const T*>(of.dsum) + first + at);
    }
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      W dx = inverse * (g_of(in, at, j) - sums[0] - n_of(in, j) * sums[1]);
      if (of.dsum != nullptr) dx += kernforge::widen(more.at[j]);
      out.at[j] = kernforge::narrow<T>(dx);
    }
    *reinterpret_cast<V*>(static_cast<T*>(of.dx) + first + at) = out;
  });
}

// The parts of dweight and dbias of `rows_of_block` rows: a warp has 32 * kColumns columns, the
// warps of a block share the rows. blockIdx.x counts columns first.
template <class T>
struct Columns {
  Backward of;
  kernforge::widened_t<T>* parts;
  int64_t rows_of_block;
  unsigned across, down;
};

// Columns of a thread: those of a vector, or two that are 32 apart.
template <int kLength>
constexpr int kColumns = kLength == 1 ? 2 : kLength;

template <class T, int kLength>
static __global__ void __launch_bounds__(256) weight_gradient(const Columns<T> given) {
  using W = kernforge::widened_t<T>;
  using V = kernforge::AlignedVector<T, kLength>;
  constexpr int kLines = 8, kEach = kColumns<kLength>, kApart = kLength == 1 ? 32 : 1;
  kernforge::grid_dependency_synchronize();
  __shared__ W shared[kLines][kEach][32];
  const Backward& of = given.of;
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const int64_t column = int64_t{blockIdx.x % given.across} * 32 * kEach + lane * kLength;
  const unsigned block = blockIdx.x / given.across;
  const int64_t first = block * given.rows_of_block;
  const int64_t end = first + given.rows_of_block;
  const int64_t last = end < of.rows ? end : of.rows;
  const auto* statistics = static_cast<const W*>(of.statistics);
  W dweight[kEach] = {}, dbias[kEach] = {};
  if (column < of.width) {
#pragma unroll 4
    for (int64_t row = first + line; row < last; row += kLines) {
      const int64_t at = row * of.width + column;
      V x[kEach / kLength], dy[kEach / kLength];
#pragma unroll
      for (int v = 0; v < kEach / kLength; ++v) {
        x[v] = {}, dy[v] = {};
        if (v > 0 && column + v * kApart >= of.width) continue;
        x[v] = *reinterpret_cast<const V*>(static_cast<const T*>(of.x) + at + v * kApart);
        dy[v] = *reinterpret_cast<const V*>(static_cast<const T*>(of.dy) + at + v * kApart);
      }
      const W mean = of.rms ? 0 : statistics[row];
      const W inverse = statistics[of.rms ? row : of.rows + row];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const W d = kernforge::widen(dy[j / kLength].at[j % kLength]);
        dweight[j] += d * ((kernforge::widen(x[j / kLength].at[j % kLength]) - mean) * inverse);
        dbias[j] += d;
      }
    }
  }
  W* part = given.parts + block * of.width;
  const auto leave = [&](const W(&sums)[kEach], W* to) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kEach; ++j) shared[line][j][lane] = sums[j];
    __syncthreads();
    for (int j = line; j < kEach; j += kLines) {
      W sum = 0;
#pragma unroll
      for (int i = 0; i < kLines; ++i) sum += shared[i][j][lane];
      if (column + j * kApart < of.width) to[column + j * kApart] = sum;
    }
  };
  if (of.dweight != nullptr) leave(dweight, part);
  if (of.dbias != nullptr) {
    leave(dbias, part + (of.dweight == nullptr ? 0 : given.down * of.width));
  }
}

// Sums of parts, [parts, width] in `from`, rounded to W: a warp has 32 columns, the warps of a
// block share the parts. Blocks from `across` on have the second of two results.
template <class A>
struct Sums {
  const A* from;
  void* to[2];
  int64_t width;
  int parts;
  unsigned across;
  bool is_wide;  // the results are A
};

template <class T, class A>
static __global__ void __launch_bounds__(256) sum_parts(const Sums<A> of) {
  constexpr int kLines = 8;
  kernforge::grid_dependency_synchronize();
  __shared__ A shared[kLines][32];
  const bool second = blockIdx.x >= of.across;
  const int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const int64_t column = int64_t{blockIdx.x - (second ? of.across : 0)} * 32 + lane;
  const A* from = of.from + (second ? of.parts * of.width : 0);
  A sum = 0;
  if (column < of.width) {
#pragma unroll 8
    for (int i = line; i < of.parts; i += kLines) sum += from[i * of.width + column];
  }
  shared[line][lane] = sum;
  __syncthreads();
  if (line > 0 || column >= of.width) return;
#pragma unroll
  for (int i = 1; i < kLines; ++i) sum += shared[i][lane];
  void* to = second ? of.to[1] : of.to[0];
  if (of.is_wide) {
    static_cast<A*>(to)[column] = sum;
  } else {
    static_cast<T*>(to)[column] = kernforge::narrow<T>(sum);
  }
}

}  // namespace layer_norm
