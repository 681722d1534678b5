// SPDX-License-Identifier: Apache-2.0
//
// Which kernel computes what, and all but hopper_*.cu: few rows, GELU alone, the slope.

#include <algorithm>

#include "few_rows.cuh"
#include "gelu.cuh"
#include "hopper.h"
#include "kernforge/elementwise.cuh"
#include "kernforge/hopper_waves.h"
#include "slope.cuh"

namespace linear_gelu {
namespace {

template <class Run>
cudaError_t with_formula(Formula formula, const Run& run) {
  using Tanh = std::integral_constant<Formula, Formula::kTanh>;
  using Erf = std::integral_constant<Formula, Formula::kErf>;
  return formula == Formula::kTanh ? run(Tanh{}) : run(Erf{});
}

int64_t size_of(DType dtype) {
  return dtype == DType::kFloat64 ? 8 : dtype == DType::kFloat32 ? 4 : 2;
}

bool aligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

int64_t parts(int64_t all, int64_t part) { return (all + part - 1) / part; }

template <class T, class A, int kEights, int kTiles, int kUnroll, int kWarps = 8>
void few_by_tensor_cores(const Linear& of, const few_rows::Problem& p, cudaStream_t stream) {
  const unsigned blocks = static_cast<unsigned>(parts(of.columns, 16 * kTiles));
  few_rows::by_tensor_cores<T, A, kEights, kTiles, kUnroll, kWarps>
      <<<blocks, kWarps * 32, 0, stream>>>(static_cast<const T*>(of.x), static_cast<const T*>(of.w),
                                           static_cast<const T*>(of.bias), static_cast<T*>(of.y),
                                           static_cast<T*>(of.z), p);
}

template <class T, Formula kFormula>
cudaError_t few(const Linear& of, cudaStream_t stream) {
  using A = Activation<T, kFormula, Sigmoid::kExp>;
  const few_rows::Problem p = {static_cast<int>(of.rows),
                               static_cast<int>(of.columns),
                               static_cast<int>(of.depth),
                               of.x_stride,
                               of.w_stride,
                               of.columns};
  const bool wide = of.columns >= 8192;  // blocks for all multiprocessors, several times
  if constexpr (sizeof(T) == 2) {
    // What was the fastest of ten on an H200: README.md.
    if (of.rows <= 8) {
      wide ? few_by_tensor_cores<T, A, 1, 1, 1>(of, p, stream)
           : few_by_tensor_cores<T, A, 1, 1, 2>(of, p, stream);
    } else {
      few_by_tensor_cores<T, A, 2, 1, 1>(of, p, stream);
    }
    return cudaGetLastError();
  }
  if (of.rows <= 8) {
    wide ? few_by_tensor_cores<T, A, 1, 2, 2>(of, p, stream)
         : few_by_tensor_cores<T, A, 1, 1, 1>(of, p, stream);
  } else {
    wide ? few_by_tensor_cores<T, A, 2, 2, 2>(of, p, stream)
         : few_by_tensor_cores<T, A, 2, 1, 1>(of, p, stream);
  }
  return cudaGetLastError();
}

// GELU by the normal distribution of z < -5 for half types: the first terms of erfc's asymptotic
// series, 3e-4 of the value. NaN for -inf, as everywhere.
__device__ __forceinline__ float gelu_of_tail(float z) {
  constexpr float kDensity = 0.3989422804014327f, kHalfLog2e = 0.7213475204444817f;
  const float r = kernforge::reciprocal_approx(z), q = r * r;
  const float series = fmaf(q, fmaf(q, fmaf(q, -15, 3), -1), 1);
  return z * (kernforge::exp2_approx(-kHalfLog2e * z * z) * -kDensity * r * series);
}

// What follows torch's linear. Half types leave time for the formula of the epilogues alone.
template <class T, Formula kFormula>
struct Gelu {
  using W = kernforge::widened_t<T>;
  __device__ __forceinline__ W operator()(W z) const {
    if constexpr (sizeof(T) == 2 && kFormula == Formula::kErf) {
      if (z < -5) return gelu_of_tail(z);
    }
    return Activation<T, kFormula, Sigmoid::kExp>::of(z);
  }
};

template <class T, Formula kFormula>
struct TimesSlope {
  using W = kernforge::widened_t<T>;
  __device__ __forceinline__ W operator()(W dy, W z) const {
    return dy * slopes::slope_of<T, kFormula>(z);
  }
};

cudaError_t launch_hopper(DType dtype, Formula formula, const Linear& of, cudaStream_t stream) {
  if (dtype == DType::kBFloat16) return hopper::launch_bfloat16(formula, of, stream);
  if (dtype == DType::kFloat16) return hopper::launch_float16(formula, of, stream);
  return hopper::launch_float32(formula, of, stream);
}

// Blocks down the rows: enough for all multiprocessors, with a row for each line at least.
int64_t slope_blocks(const Slope& of) {
  const int64_t across = parts(of.columns, slopes::kLanes * 8);
  const int64_t most = parts(of.rows, slopes::kLines);
  return std::max<int64_t>(1, std::min(most, parts(1024, across)));
}

// Where our kernels are not slower than torch's linear and GELU, on an H100 and an H200: README.md
// has the figures. Few rows: up to so many, to so much depth. Where a row of blocks reads a deeper
// weight, cuBLAS splits the depth; with many columns there are blocks enough.
struct FewRows {
  int64_t rows, depth, least_columns;
};
constexpr FewRows kFewHalves[] = {{8, 8192, 0}, {16, 2048, 0}, {16, 8192, 4096}};
constexpr FewRows kFewTf32[] = {{8, 4096, 0}, {16, 2048, 0}, {8, 8192, 4096}};

}  // namespace

cudaError_t path_of(DType dtype, bool tf32, const Linear& of, Path* path) {
  *path = Path::kTorch;
  const int64_t size = size_of(dtype);
  const bool whole = aligned(of.x, 16) && aligned(of.w, 16) && of.x_stride * size % 16 == 0 &&
                     of.w_stride * size % 16 == 0;
  if (size == 8 || !whole || of.depth == 0) return cudaSuccess;
  if (size == 4 && !tf32) return cudaSuccess;
  for (const FewRows& few : size == 2 ? kFewHalves : kFewTf32) {
    if (of.rows <= few.rows && of.depth <= few.depth && of.columns >= few.least_columns &&
        of.depth * size % 16 == 0) {
      *path = Path::kFewRows;
      return cudaSuccess;
    }
  }
  // A tensor map has no row that overlaps the next, and the result's rows begin on 16 bytes.
  if (of.x_stride < of.depth || of.w_stride < of.depth || of.columns * size % 16 != 0 ||
      !aligned(of.bias, 2 * size) ||
      !kernforge::hopper::tiles_are_ahead(of.rows, of.columns, 1, of.depth, true)) {
    return cudaSuccess;
  }
  kernforge::Device device;
  const cudaError_t error = kernforge::current_device(&device);
  if (!error && device.compute_capability == 90) *path = Path::kHopper;
  return error;
}

cudaError_t linear_launch(DType dtype, Formula formula, bool tf32, const Linear& of, Path path,
                          cudaStream_t stream) {
  if (path == Path::kHopper) return launch_hopper(dtype, formula, of, stream);
  return with_formula(formula, [&](auto chosen) {
    return kernforge::dispatch(dtype, [&](auto element) {
      using T = decltype(element);
      if constexpr (sizeof(T) < 8) return few<T, decltype(chosen)::value>(of, stream);
      return cudaErrorNotSupported;
    });
  });
}

cudaError_t gelu_launch(DType dtype, Formula formula, const void* z, void* y, int64_t n,
                        cudaStream_t stream) {
  return with_formula(formula, [&](auto chosen) {
    return kernforge::dispatch(dtype, [&](auto element) {
      using T = decltype(element);
      return kernforge::elementwise<T>(Gelu<T, decltype(chosen)::value>{}, n, stream, y, z);
    });
  });
}

int64_t slope_scratch(const Slope& of) {
  return of.sums == nullptr ? 0 : slope_blocks(of) * of.columns;
}

cudaError_t slope_launch(DType dtype, Formula formula, const Slope& of, void* scratch,
                         cudaStream_t stream) {
  if (of.columns == 0) return cudaSuccess;
  const int64_t blocks = slope_blocks(of), rows_of_block = parts(of.rows, blocks);
  return with_formula(formula, [&](auto chosen) {
    constexpr Formula kFormula = decltype(chosen)::value;
    return kernforge::dispatch(dtype, [&](auto element) {
      using T = decltype(element);
      if (of.sums == nullptr) {
        return kernforge::elementwise<T>(TimesSlope<T, kFormula>{}, of.rows * of.columns, stream,
                                         of.dz, of.dy, of.z);
      }
      auto* partial = static_cast<kernforge::widened_t<T>*>(scratch);
      const auto run = [&](auto vector) {
        constexpr int kVector = decltype(vector)::value;
        const dim3 grid(static_cast<unsigned>(parts(of.columns, slopes::kLanes * kVector)),
                        static_cast<unsigned>(blocks));
        slopes::multiply<T, kFormula, kVector>
            <<<grid, slopes::kLanes * slopes::kLines, 0, stream>>>(
                static_cast<const T*>(of.dy), static_cast<const T*>(of.z), static_cast<T*>(of.dz),
                partial, of.rows, of.columns, rows_of_block);
      };
      constexpr int kMost = kernforge::kVectorLength<T>;
      const bool wide =
          of.columns % kMost == 0 && aligned(of.dy, 16) && aligned(of.z, 16) && aligned(of.dz, 16);
      wide ? run(std::integral_constant<int, kMost>{}) : run(std::integral_constant<int, 1>{});
      slopes::sum_blocks<T><<<static_cast<unsigned>(parts(of.columns, 32)), 1024, 0, stream>>>(
          partial, static_cast<T*>(of.sums), of.columns, static_cast<int>(blocks));
      return cudaGetLastError();
    });
  });
}

}  // namespace linear_gelu
