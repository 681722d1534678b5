// SPDX-License-Identifier: Apache-2.0
//
// Starts hopper.cuh's kernel: tensor maps, clusters, as many blocks as the device holds.

#pragma once

#include <atomic>

#include "hopper.cuh"
#include "hopper.h"

namespace linear_gelu::hopper {

// A matrix with rows side by side in memory; `stride` in elements between rows.
struct Matrix {
  const void* data;
  int64_t rows, columns, stride;
};

// Boxes of `rows` rows and 128 bytes. False where the matrix cannot be described.
inline bool encode(CUtensorMap* map, CUtensorMapDataType type, int size, const Matrix& of,
                   int rows) {
  return ptx::encode_map(map, type, size, of.data, of.rows, of.columns, of.stride, rows);
}

// y and z have the stride of their columns; z.data == nullptr: not kept.
template <class S, class Activation, bool kKeep>
cudaError_t launch(const Matrix& x, const Matrix& w, const Matrix& y, const Matrix& z,
                   const void* bias, Problem problem, cudaStream_t stream) {
  using T = typename S::T;
  constexpr int kSize = sizeof(T);
  CUtensorMap of_x, of_w, of_y, of_z;
  // Of fewer rows than a tile has no box is larger: what is filled in outside of the matrix takes
  // longer than what is read. The rest of the shared memory is multiplied and not written.
  problem.left_rows = S::kLeftBox;
  if (S::kCluster == 1 && problem.rows < S::kRows) problem.left_rows = problem.rows;
  // What float32 is multiplied as: rounded by the copy, where the product itself would truncate.
  constexpr auto kInput = kSize == 4 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : ptx::kMapType<T>;
  if (!encode(&of_x, kInput, kSize, x, problem.left_rows) ||
      !encode(&of_w, kInput, kSize, w, S::kRightBox) ||
      !encode(&of_y, ptx::kMapType<T>, kSize, y, 16) ||
      (kKeep && !encode(&of_z, ptx::kMapType<T>, kSize, z, 16))) {
    return cudaErrorInvalidValue;
  }
  if (!kKeep) of_z = of_y;
  const auto kernel = &linear<S, Activation, kKeep>;

  cudaLaunchConfig_t config{};
  config.blockDim = 384;
  config.dynamicSmemBytes = S::kShared;
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {S::kCluster, 1, 1};
  config.attrs = &attribute;
  config.numAttrs = 1;

  constexpr int kDevices = 64;
  static std::atomic<int> resident[kDevices];  // clusters; 0: not asked yet
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  int clusters = device < kDevices ? resident[device].load(std::memory_order_relaxed) : 0;
  if (clusters == 0) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
    if (error == cudaSuccess && S::kCluster > 8) {
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    config.gridDim = S::kCluster;
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    if (error != cudaSuccess) return error;
    if (clusters < 1) return cudaErrorInvalidConfiguration;
    if (device < kDevices) resident[device].store(clusters, std::memory_order_relaxed);
  }
  const int64_t tiles =
      ((problem.rows + S::kRows * S::kClusterRows - 1) / (S::kRows * S::kClusterRows)) *
      int64_t{(problem.columns + S::kColumns * S::kClusterColumns - 1) /
              (S::kColumns * S::kClusterColumns)};
  config.gridDim = static_cast<unsigned>((tiles < clusters ? tiles : clusters) * S::kCluster);
  return cudaLaunchKernelEx(&config, kernel, of_x, of_w, of_y, of_z, static_cast<const T*>(bias),
                            problem);
}

template <class S, Formula kFormula>
cudaError_t launch_shape(const Linear& of, cudaStream_t stream) {
  using A = Activation<typename S::T, kFormula, Sigmoid::kTanh>;
  const Matrix x{of.x, of.rows, of.depth, of.x_stride};
  const Matrix w{of.w, of.columns, of.depth, of.w_stride};
  const Matrix y{of.y, of.rows, of.columns, of.columns};
  const Matrix z{of.z, of.rows, of.columns, of.columns};
  const Problem problem{static_cast<int>(of.rows),
                        static_cast<int>(of.columns),
                        static_cast<int>(of.depth),
                        8,
                        true,
                        4,
                        0};
  if (of.z != nullptr) return launch<S, A, true>(x, w, y, z, of.bias, problem, stream);
  return launch<S, A, false>(x, w, y, z, of.bias, problem, stream);
}

template <class T>
cudaError_t launch_type(Formula formula, const Linear& of, cudaStream_t stream) {
  const auto run = [&](auto shape) {
    using S = decltype(shape);
    return formula == Formula::kTanh ? launch_shape<S, Formula::kTanh>(of, stream)
                                     : launch_shape<S, Formula::kErf>(of, stream);
  };
  // Tiles of 128 rows: the waves of them that 132 multiprocessors need, times what a wave takes in
  // comparison with tiles of 256 columns, which read the least for a product.
  const auto waves = [&](int64_t columns) {
    return ((of.rows + 127) / 128 * ((of.columns + columns - 1) / columns) + 131) / 132;
  };
  const int64_t of_256 = waves(256) * 100, of_128 = waves(128) * 55, of_64 = waves(64) * 34;
  if (of.rows <= 128) {
    if (of_64 < of_128) return run(Shape<T, 128, 64, 8, 1, 1>{});
    return run(Shape<T, 128, 128, 6, 1, 1>{});
  }
  if (of_64 < of_128 && of_64 < of_256) return run(Shape<T, 128, 64, 8, 1, 1>{});
  if (of_128 < of_256) return run(Shape<T, 128, 128, 6, 2, 1>{});
  return run(Shape<T, 128, 256, 4, 2, 1>{});
}

}  // namespace linear_gelu::hopper
