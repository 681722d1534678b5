// SPDX-License-Identifier: Apache-2.0
#include "linear_gelu.cuh"

namespace cutlass_linear_gelu {

extern const Kernel pingpong_64x256 = kernel_of<cute::Shape<cute::_64, cute::_256, cute::_64>,
                                                cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                                cutlass::epilogue::TmaWarpSpecialized>();

}  // namespace cutlass_linear_gelu
