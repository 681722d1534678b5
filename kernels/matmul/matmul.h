// SPDX-License-Identifier: Apache-2.0
//
// c = activation(scales * (a b) + bias) + residual: what the launchers, the CPU path and the
// binding share. No torch header.

#pragma once

#include <cmath>
#include <cstdint>

#include "kernforge/dtype.h"

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace matmul {

enum class Type { kFloat32, kFloat16, kBFloat16, kFloat64, kE4M3, kE5M2 };  // DType's, and fp8

// As Python names them: none, relu, gelu (by tanh), gelu by the normal distribution, silu.
enum class Activation { kNone, kRelu, kGeluTanh, kGeluErf, kSilu };

inline int size_of(Type type) {
  return type == Type::kFloat64 ? 8 : type == Type::kFloat32 ? 4 : type >= Type::kE4M3 ? 1 : 2;
}
inline bool is_fp8(Type type) { return type >= Type::kE4M3; }
inline kernforge::DType dtype_of(Type type) {  // not of fp8
  return static_cast<kernforge::DType>(type);
}

template <class W>
KERNFORGE_HOST_DEVICE inline W activated(Activation activation, W z) {
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

// What follows a product of torch, [matrices, rows, columns] without gaps, of the type of c or, of
// fp8, of float: c of it, in place where the product is c. On CPUs of the lines from `first` on.
void finish_cpu(const Matmul& of, const void* product, int64_t first, int64_t last);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)

cudaError_t finish_launch(const Matmul& of, const void* product, cudaStream_t stream);

// Whether tiles can read the operands and write the result as they lie on the current device, and
// are not slower than torch: matmul.cu has the table. `tf32`: float32 may be multiplied as tf32.
cudaError_t tiles_are_ahead(const Matmul& of, bool tf32, bool* ahead);

// On the current device, asynchronously on the stream.
cudaError_t tiles_launch(const Matmul& of, cudaStream_t stream);

#endif

}  // namespace matmul
