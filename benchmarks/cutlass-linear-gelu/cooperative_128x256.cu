// SPDX-License-Identifier: Apache-2.0
#include "linear_gelu.cuh"

namespace cutlass_linear_gelu {

extern const Kernel cooperative_128x256 =
    kernel_of<cute::Shape<cute::_128, cute::_256, cute::_64>,
              cutlass::gemm::KernelTmaWarpSpecializedCooperative,
              cutlass::epilogue::TmaWarpSpecializedCooperative>();

}  // namespace cutlass_linear_gelu
