// SPDX-License-Identifier: Apache-2.0
//
// CUTLASS's kernel for Hopper with bias and GELU in its epilogue: TMA, wgmma, clusters of 2 x 1, a
// persistent grid.

#pragma once

#include <cutlass/bfloat16.h>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>

#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "linear_gelu.h"

namespace cutlass_linear_gelu {

template <class Tile, class Mainloop, class Epilogue>
struct Build {
  using Number = cutlass::bfloat16_t;
  using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;
  static constexpr int kAlign = 8;  // elements of 16 bytes
  using Fusion =
      cutlass::epilogue::fusion::LinCombPerColBiasEltAct<cutlass::epilogue::thread::GELU_taylor,
                                                         Number, float, Number>;
  using End = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, void,
      cutlass::layout::RowMajor, kAlign, Number, cutlass::layout::RowMajor, kAlign, Epilogue,
      Fusion>::CollectiveOp;
  using Main = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, cutlass::layout::RowMajor,
      kAlign, Number, cutlass::layout::ColumnMajor, kAlign, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<sizeof(typename End::SharedStorage)>,
      Mainloop>::CollectiveOp;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, End>>;

  static typename Gemm::Arguments arguments(const Problem& of) {
    const auto stride = [](auto kind, int rows, int columns) {
      return cutlass::make_cute_packed_stride(kind, {rows, columns, 1});
    };
    typename Gemm::Arguments all{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {of.rows, of.columns, of.depth, 1},
        {static_cast<const Number*>(of.x), stride(typename Main::StrideA{}, of.rows, of.depth),
         static_cast<const Number*>(of.weight),
         stride(typename Main::StrideB{}, of.columns, of.depth)},
        {{},
         nullptr,
         {},
         static_cast<Number*>(of.y),
         stride(typename End::StrideD{}, of.rows, of.columns)}};
    all.epilogue.thread.alpha = 1;
    all.epilogue.thread.beta = 0;
    all.epilogue.thread.bias_ptr = static_cast<const Number*>(of.bias);
    all.hw_info.sm_count = of.multiprocessors;
    all.scheduler.max_swizzle_size = of.swizzle;
    return all;
  }

  static int64_t workspace(const Problem& of) {
    return static_cast<int64_t>(Gemm::get_workspace_size(arguments(of)));
  }

  static cudaError_t launch(const Problem& of, void* memory, cudaStream_t stream) {
    const auto given = arguments(of);
    Gemm gemm;
    if (Gemm::can_implement(given) != cutlass::Status::kSuccess ||
        gemm.initialize(given, memory, stream) != cutlass::Status::kSuccess) {
      return cudaErrorInvalidValue;
    }
    if (gemm.run(stream) != cutlass::Status::kSuccess) return cudaErrorLaunchFailure;
    return cudaSuccess;
  }
};

template <class Tile, class Mainloop, class Epilogue>
constexpr Kernel kernel_of() {
  using Own = Build<Tile, Mainloop, Epilogue>;
  return {&Own::workspace, &Own::launch};
}

}  // namespace cutlass_linear_gelu
