// SPDX-License-Identifier: Apache-2.0
//
// Where the tiles of hopper_*.cu are used, and what follows a product of torch.

#include "finish.cuh"
#include "hopper.h"
#include "kernforge/hopper_waves.h"
#include "matmul.h"

namespace matmul {
namespace {

int64_t parts(int64_t all, int64_t part) { return (all + part - 1) / part; }

// That rows lie side by side and begin on `bytes`.
bool whole(const Matrices& of, int64_t fast_stride, int64_t slow_stride, int64_t fast, int64_t size,
           int64_t bytes = 16) {
  return fast_stride == 1 && slow_stride >= fast && slow_stride * size % bytes == 0 &&
         of.matrix_stride * size % bytes == 0 && reinterpret_cast<uintptr_t>(of.data) % bytes == 0;
}
bool by_rows(const Matrices& of, int64_t columns, int64_t size) {
  return of.data == nullptr || whole(of, of.column_stride, of.row_stride, columns, size);
}

// That nothing lies between the numbers of `m`, which has the shape of the result of `of`.
bool is_flat(const Matrices& m, const Matmul& of) {
  return m.data == nullptr ||
         (m.column_stride == 1 && (of.rows == 1 || m.row_stride == of.columns) &&
          (of.matrices == 1 || m.matrix_stride == of.rows * of.columns) &&
          reinterpret_cast<uintptr_t>(m.data) % kernforge::kVectorBytes == 0);
}

// [lines, depth] whose distances are these: can a tensor copy read it for the product?
bool readable(const Matrices& of, int64_t lines, int64_t depth, int64_t line_stride,
              int64_t depth_stride, int size) {
  if (whole(of, depth_stride, line_stride, depth, size)) return true;
  return size == 2 && whole(of, line_stride, depth_stride, lines, size);
}

}  // namespace

cudaError_t tiles_are_ahead(const Matmul& of, bool tf32, bool* ahead) {
  *ahead = false;
  if (of.left == Type::kFloat64 || (of.left == Type::kFloat32 && !tf32) || of.depth == 0) {
    return cudaSuccess;
  }
  if (of.left == Type::kE5M2 && of.right == Type::kE5M2) return cudaSuccess;  // not in wgmma
  const int size = size_of(of.left), out = size_of(of.out);
  // A tensor map has no row that overlaps another, and the epilogue takes pairs of columns.
  if (!readable(of.a, of.rows, of.depth, of.a.row_stride, of.a.column_stride, size) ||
      !readable(of.b, of.columns, of.depth, of.b.column_stride, of.b.row_stride, size) ||
      !by_rows(of.c, of.columns, out) || !by_rows(of.extras.residual, of.columns, out) ||
      reinterpret_cast<uintptr_t>(of.extras.bias) % (2 * out) != 0 ||
      (of.columns % 2 != 0 && of.extras.any())) {
    return cudaSuccess;
  }
  if (!is_fp8(of.left)) {
    const bool fused =
        of.extras.residual.data != nullptr || of.extras.activation != Activation::kNone;
    if (!kernforge::hopper::tiles_are_ahead(of.rows, of.columns, of.matrices, of.depth, fused)) {
      return cudaSuccess;
    }
  }
  kernforge::Device device;
  const cudaError_t error = kernforge::current_device(&device);
  *ahead = device.compute_capability == 90;
  return error;
}

cudaError_t tiles_launch(const Matmul& of, cudaStream_t stream) {
  if (of.left == Type::kBFloat16) return hopper::launch_bfloat16(of, stream);
  if (of.left == Type::kFloat16) return hopper::launch_float16(of, stream);
  if (of.left == Type::kFloat32) return hopper::launch_float32(of, stream);
  return hopper::launch_fp8(of, stream);
}

cudaError_t finish_launch(const Matmul& of, const void* product, cudaStream_t stream) {
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  const auto run = [&](auto in, auto element) {
    using In = decltype(in);
    using T = decltype(element);
    const auto of_vectors = [&](auto length, auto flat) {
      constexpr int kVector = decltype(length)::value;
      const int64_t threads = parts(of.matrices * of.rows * of.columns, kVector);
      const Finish given{of, product, kernforge::Divisor(static_cast<uint32_t>(of.columns))};
      return kernforge::launch(device, stream, finish<In, T, kVector, decltype(flat)::value>,
                               parts(threads, 256), 256, given);
    };
    constexpr int kVector = kernforge::kVectorBytes / sizeof(In);
    using Vector = std::integral_constant<int, kVector>;
    const bool aligned = reinterpret_cast<uintptr_t>(product) % kernforge::kVectorBytes == 0;
    const Matrices bias{of.extras.bias, of.columns, 1, 0};
    if (aligned && of.columns % kVector == 0 && by_rows(of.c, of.columns, sizeof(T)) &&
        by_rows(of.extras.residual, of.columns, sizeof(T)) &&
        by_rows(bias, of.columns, sizeof(T))) {
      return of_vectors(Vector{}, std::false_type{});
    }
    if (aligned && of.extras.scale_a == nullptr && is_flat(of.c, of) &&
        is_flat(of.extras.residual, of)) {
      return of_vectors(Vector{}, std::true_type{});
    }
    return of_vectors(std::integral_constant<int, 1>{}, std::false_type{});
  };
  return kernforge::dispatch(dtype_of(of.out), [&](auto element) {
    if constexpr (sizeof(element) == 2) {
      if (is_fp8(of.left)) return run(float{}, element);
    }
    return run(element, element);
  });
}

}  // namespace matmul
