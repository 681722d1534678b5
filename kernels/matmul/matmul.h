// SPDX-License-Identifier: Apache-2.0
//
// c = activation(scales * (a b) + bias) + residual: what the launchers, the CPU path and the
// binding share. No torch header.

#pragma once

#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace matmul {

enum class Type { kFloat32, kFloat16, kBFloat16, kFloat64, kE4M3, kE5M2 };

// As Python names them: none, relu, gelu (by tanh), gelu by the normal distribution, silu.
enum class Activation { kNone, kRelu, kGeluTanh, kGeluErf, kSilu };

inline int size_of(Type type) {
  return type == Type::kFloat64 ? 8 : type == Type::kFloat32 ? 4 : type >= Type::kE4M3 ? 1 : 2;
}

// `matrices` matrices [rows, columns]; strides in elements, 0 where all are one.
struct Matrices {
  const void* data;
  int64_t row_stride, column_stride, matrix_stride;
};

struct Extras {
  const void* bias;      // [columns] of the result's type, or nullptr
  Matrices residual;     // like the result; data nullptr: none
  const float* scale_a;  // of a row of a (stride 1) or of all (stride 0), or nullptr
  const float* scale_b;  // of a column of b
  int64_t scale_a_stride, scale_b_stride;
  Activation activation;

  bool any() const {
    return bias != nullptr || residual.data != nullptr || scale_a != nullptr ||
           scale_b != nullptr || activation != Activation::kNone;
  }
};

// a [rows, depth], b [depth, columns], c [rows, columns] of `out`, each `matrices` times.
struct Matmul {
  Matrices a, b, c;
  int64_t rows, columns, depth, matrices;
  Type left, right, out;
  Extras extras;
};

// In place, of n rows of c without gaps of which the first is row `first` of a matrix of `rows`.
void finish_cpu(kernforge::DType dtype, void* c, const void* residual, const void* bias,
                Activation activation, int64_t n, int64_t columns);

// Products of fp8, one row of c at a time, rounded to float.
void fp8_rows_cpu(const Matmul& of, int64_t matrix, int64_t first, int64_t last);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

enum class Path {
  kHopper,  // tensor cores of compute capability 9.0 by wgmma
  kPlain,   // without tensor cores
};

// `scratch`: bytes that the path needs for copies of what it cannot read as it lies.
struct Plan {
  Path path;
  bool copy_a, copy_b, copy_c, copy_residual;
  int64_t scratch;
};
cudaError_t plan_of(const Matmul& of, bool tf32, Plan* plan);

// On the current device, asynchronously on the stream. Nothing is launched for an empty result.
cudaError_t matmul_launch(const Matmul& of, const Plan& plan, void* scratch, cudaStream_t stream);

#endif

}  // namespace matmul
