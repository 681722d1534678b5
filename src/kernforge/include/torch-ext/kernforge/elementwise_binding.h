// SPDX-License-Identifier: Apache-2.0
//
// How a binding calls what elementwise.cuh has: for tensors of ATen and of the stable ABI. Included
// by their headers.

#pragma once

#include <cstdint>

#include "kernforge/strides.h"

#if defined(CUDA_KERNEL)

namespace kernforge {

// Calls launch(strides, stream, addresses of the inputs...) for a dense result. The strides are
// null where the inputs lie like it. What they cannot say is copied first.
template <class Tensor, class Launch, class... In>
void launch_elementwise(const char* op, const Tensor& out, const Launch& launch, const In&... in) {
  Strides<sizeof...(In)> strides = {};
  const bool alike = (same_strides(in, out) && ...);
  if (!alike && out.numel() > 0) {
    const int64_t* const given[] = {in.strides().data()...};
    strides = merged_strides(out.dim(), out.sizes().data(), out.strides().data(), given);
    if (!strides.fits) return launch_elementwise(op, out, launch, laid_out_as(out, in)...);
  }
  on_device_of(out, op, [&](auto stream) {
    return launch(alike ? nullptr : &strides, stream, in.const_data_ptr()...);
  });
}

}  // namespace kernforge

#endif
