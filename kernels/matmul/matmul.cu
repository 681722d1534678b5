// SPDX-License-Identifier: Apache-2.0
//
// Which kernel computes what, and all but hopper_*.cu: the plain path, and copies of operands that
// tensor copies cannot read.

#include <algorithm>

#include "hopper.h"
#include "matmul.h"
#include "plain.cuh"

namespace matmul {
namespace {

int64_t parts(int64_t all, int64_t part) { return (all + part - 1) / part; }
int64_t rounded(int64_t n, int64_t to) { return parts(n, to) * to; }

cudaError_t is_hopper(bool* is) {
  int device = 0, major = 0, minor = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (!error) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (!error) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *is = major == 9 && minor == 0;
  return error;
}

// That rows lie side by side and begin on 16 bytes, as tensor copies want it.
bool whole(const Matrices& of, int64_t fast_stride, int64_t slow_stride, int64_t fast,
           int64_t size) {
  return fast_stride == 1 && slow_stride >= fast && slow_stride * size % 16 == 0 &&
         of.matrix_stride * size % 16 == 0 && reinterpret_cast<uintptr_t>(of.data) % 16 == 0;
}

// [lines, depth] whose distances are these: can a tensor copy read it for the product?
bool readable(const Matrices& of, int64_t lines, int64_t depth, int64_t line_stride,
              int64_t depth_stride, int size) {
  if (whole(of, depth_stride, line_stride, depth, size)) return true;
  return size == 2 && whole(of, line_stride, depth_stride, lines, size);
}

// A contiguous copy of `lines` lines has rows of a whole number of 16 bytes.
int64_t copied_bytes(int64_t matrices, int64_t lines, int64_t fast, int size) {
  return rounded(matrices * lines * rounded(fast * size, 16), 256);
}

// Products of fewer multiplications are not worth three launches.
constexpr double kWorthCopies = 1 << 22;

cudaError_t copy(int size, const Matrices& from, const Matrices& to, int64_t rows, int64_t columns,
                 int64_t matrices, cudaStream_t stream) {
  const int64_t tiles = parts(rows, plain::kCopied) * parts(columns, plain::kCopied);
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  const dim3 grid(static_cast<unsigned>(tiles),
                  static_cast<unsigned>(std::min<int64_t>(matrices, 65535)));
  const auto run = [&](auto element) {
    plain::copy<decltype(element)>
        <<<grid, kernforge::plain::kThreads, 0, stream>>>(from, to, rows, columns, matrices);
  };
  size == 1 ? run(uint8_t{}) : size == 2 ? run(uint16_t{}) : run(uint32_t{});
  return cudaGetLastError();
}

template <class T, class Out = T>
cudaError_t plain_of(const Matmul& of, cudaStream_t stream) {
  using W = kernforge::widened_t<Out>;
  const kernforge::plain::Problem problem{
      {of.a.data, of.a.row_stride, of.a.column_stride, of.a.matrix_stride},
      {of.b.data, of.b.column_stride, of.b.row_stride, of.b.matrix_stride},
      of.rows,
      of.columns,
      of.depth,
      of.matrices};
  const plain::Finish<T, Out> finish{of.c, of.left, of.right, of.extras};
  return kernforge::plain::launch<T, W>(problem, finish, stream);
}

cudaError_t launch_plain(const Matmul& of, cudaStream_t stream) {
  switch (of.left) {
    case Type::kFloat64:
      return plain_of<double>(of, stream);
    case Type::kFloat32:
      return plain_of<float>(of, stream);
    case Type::kFloat16:
      return plain_of<__half>(of, stream);
    case Type::kBFloat16:
      return plain_of<__nv_bfloat16>(of, stream);
    default:
      return of.out == Type::kFloat16 ? plain_of<uint8_t, __half>(of, stream)
                                      : plain_of<uint8_t, __nv_bfloat16>(of, stream);
  }
}

cudaError_t launch_hopper(const Matmul& of, cudaStream_t stream) {
  if (of.left == Type::kBFloat16) return hopper::launch_bfloat16(of, stream);
  if (of.left == Type::kFloat16) return hopper::launch_float16(of, stream);
  if (of.left == Type::kFloat32) return hopper::launch_float32(of, stream);
  return hopper::launch_fp8(of, stream);
}

}  // namespace

cudaError_t plan_of(const Matmul& of, bool tf32, Plan* plan) {
  *plan = {Path::kPlain, false, false, false, false, 0};
  if (of.left == Type::kFloat64 || (of.left == Type::kFloat32 && !tf32)) return cudaSuccess;
  if (of.rows == 0 || of.columns == 0 || of.depth == 0 || of.matrices == 0) return cudaSuccess;
  if (of.left == Type::kE5M2 && of.right == Type::kE5M2) return cudaSuccess;
  // A tensor map has no row that overlaps another.
  const int size = size_of(of.left), out = size_of(of.out);
  const bool a = readable(of.a, of.rows, of.depth, of.a.row_stride, of.a.column_stride, size);
  const bool b = readable(of.b, of.columns, of.depth, of.b.column_stride, of.b.row_stride, size);
  // The epilogue takes pairs of columns.
  if (reinterpret_cast<uintptr_t>(of.extras.bias) % (2 * out) != 0 ||
      (of.columns % 2 != 0 && of.extras.any())) {
    return cudaSuccess;
  }
  const Matrices& residual = of.extras.residual;
  const bool r = residual.data == nullptr ||
                 whole(residual, residual.column_stride, residual.row_stride, of.columns, out);
  const bool c = whole(of.c, of.c.column_stride, of.c.row_stride, of.columns, out);
  const double products = double(of.rows) * of.columns * of.depth * of.matrices;
  if (!(a && b && c && r) && products < kWorthCopies) return cudaSuccess;
  bool hopper = false;
  if (const cudaError_t error = is_hopper(&hopper); error || !hopper) return error;
  const auto count = [&](const Matrices& m) { return m.matrix_stride == 0 ? 1 : of.matrices; };
  plan->path = Path::kHopper;
  plan->copy_a = !a, plan->copy_b = !b, plan->copy_c = !c, plan->copy_residual = !r;
  if (!a) plan->scratch += copied_bytes(count(of.a), of.rows, of.depth, size);
  if (!b) plan->scratch += copied_bytes(count(of.b), of.columns, of.depth, size);
  if (!c) plan->scratch += copied_bytes(of.matrices, of.rows, of.columns, out);
  if (!r) plan->scratch += copied_bytes(count(residual), of.rows, of.columns, out);
  return cudaSuccess;
}

cudaError_t matmul_launch(const Matmul& given, const Plan& plan, void* scratch,
                          cudaStream_t stream) {
  if (given.rows == 0 || given.columns == 0 || given.matrices == 0) return cudaSuccess;
  if (plan.path == Path::kPlain) return launch_plain(given, stream);
  Matmul of = given;
  char* next = static_cast<char*>(scratch);
  const auto place = [&](int64_t matrices, int64_t lines, int64_t fast, int size) {
    const int64_t stride = rounded(fast * size, 16) / size;
    const Matrices at{next, stride, 1, matrices == 1 ? 0 : lines * stride};
    next += copied_bytes(matrices, lines, fast, size);
    return at;
  };
  const int size = size_of(of.left), out = size_of(of.out);
  if (plan.copy_a) {
    const int64_t count = of.a.matrix_stride == 0 ? 1 : of.matrices;
    of.a = place(count, of.rows, of.depth, size);
    if (const auto error = copy(size, given.a, of.a, of.rows, of.depth, count, stream)) {
      return error;
    }
  }
  if (plan.copy_b) {
    const int64_t count = of.b.matrix_stride == 0 ? 1 : of.matrices;
    const Matrices to = place(count, of.columns, of.depth, size);
    of.b = {to.data, 1, to.row_stride, to.matrix_stride};  // [depth, columns], the depth in order
    if (const auto error = copy(size, given.b, of.b, of.depth, of.columns, count, stream)) {
      return error;
    }
  }
  if (plan.copy_residual) {
    const Matrices& from = given.extras.residual;
    const int64_t count = from.matrix_stride == 0 ? 1 : of.matrices;
    of.extras.residual = place(count, of.rows, of.columns, out);
    if (const auto error =
            copy(out, from, of.extras.residual, of.rows, of.columns, count, stream)) {
      return error;
    }
  }
  if (plan.copy_c) of.c = place(of.matrices, of.rows, of.columns, out);
  if (const auto error = launch_hopper(of, stream)) return error;
  if (!plan.copy_c) return cudaSuccess;
  return copy(out, of.c, given.c, of.rows, of.columns, of.matrices, stream);
}

}  // namespace matmul
