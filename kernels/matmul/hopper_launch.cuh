// SPDX-License-Identifier: Apache-2.0
//
// Starts hopper.cuh's kernel: tensor maps, clusters, as many blocks as the device holds.

#pragma once

#include <algorithm>
#include <atomic>

#include "hopper.cuh"
#include "hopper.h"

namespace matmul::hopper {

struct Order {
  int band;
  bool bands_of_rows;
  int stagger;
};

// The map of an operand whose tiles have `part` of its rows (of b: columns) in a box.
template <class T, Major kMajor>
bool encode(CUtensorMap* map, const Matrices& of, int64_t lines, int64_t depth, int64_t line_stride,
            int64_t depth_stride, int64_t matrices, int part) {
  // What float32 is multiplied as: rounded by the copy, where the product itself would truncate.
  constexpr auto kType =
      std::is_same_v<T, float> ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : ptx::kMapType<T>;
  const int64_t count = of.matrix_stride == 0 ? 1 : matrices;
  // One matrix has no distance to the next, but the map wants one.
  if constexpr (kMajor == Major::kDepth) {
    const int64_t next = count == 1 ? lines * line_stride : of.matrix_stride;
    return ptx::encode_map(map, kType, sizeof(T), of.data, lines, depth, line_stride, part, count,
                           next);
  } else {
    const int64_t next = count == 1 ? depth * depth_stride : of.matrix_stride;
    return ptx::encode_map(map, kType, sizeof(T), of.data, depth, lines, depth_stride,
                           128 / sizeof(T), count, next);
  }
}

template <class K, class S, Epilogue kEpilogue>
cudaError_t launch(const Matmul& of, const Order& order, cudaStream_t stream) {
  using Out = typename K::Out;
  CUtensorMap a, b, c;
  if (!encode<typename K::Left, K::kLeft>(&a, of.a, of.rows, of.depth, of.a.row_stride,
                                          of.a.column_stride, of.matrices, S::kLeftPart) ||
      !encode<typename K::Right, K::kRight>(&b, of.b, of.columns, of.depth, of.b.column_stride,
                                            of.b.row_stride, of.matrices, S::kRightPart) ||
      !ptx::encode_map(&c, ptx::kMapType<Out>, sizeof(Out), of.c.data, of.rows, of.columns,
                       of.c.row_stride, 16, of.matrices,
                       of.matrices == 1 ? of.rows * of.c.row_stride : of.c.matrix_stride)) {
    return cudaErrorInvalidValue;
  }
  const Problem problem{static_cast<int>(of.rows),
                        static_cast<int>(of.columns),
                        static_cast<int>(of.depth),
                        static_cast<int>(of.matrices),
                        of.a.matrix_stride == 0,
                        of.b.matrix_stride == 0,
                        order.band,
                        order.bands_of_rows,
                        std::min(order.stagger, S::kStages)};
  const auto kernel = &multiply<K, S, kEpilogue>;

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
    config.gridDim = S::kCluster;
    if (error == cudaSuccess) error = cudaOccupancyMaxActiveClusters(&clusters, kernel, &config);
    if (error != cudaSuccess) return error;
    if (clusters < 1) return cudaErrorInvalidConfiguration;
    if (device < kDevices) resident[device].store(clusters, std::memory_order_relaxed);
  }
  const auto parts = [](int64_t all, int64_t part) { return (all + part - 1) / part; };
  const int64_t tiles = parts(of.rows, S::kRows * S::kClusterRows) *
                        parts(of.columns, S::kColumns * S::kClusterColumns) * of.matrices;
  if (tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  config.gridDim = static_cast<unsigned>((tiles < clusters ? tiles : clusters) * S::kCluster);
  return cudaLaunchKernelEx(&config, kernel, a, b, c, of.extras, curve_of(of.extras.activation),
                            problem);
}

}  // namespace matmul::hopper
