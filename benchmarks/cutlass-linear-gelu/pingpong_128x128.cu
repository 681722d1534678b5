// SPDX-License-Identifier: Apache-2.0
#include "linear_gelu.cuh"

namespace cutlass_linear_gelu {

extern const Kernel pingpong_128x128 = kernel_of<cute::Shape<cute::_128, cute::_128, cute::_64>,
                                                 cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                                                 cutlass::epilogue::TmaWarpSpecialized>();

}  // namespace cutlass_linear_gelu
