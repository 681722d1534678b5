// SPDX-License-Identifier: Apache-2.0
//
// A formula over the elements of dense tensors of one dtype on CPUs: the twin of elementwise.cuh.
// Plain loops that the compiler vectorises; the half types are torch's header-only ones, which need
// no torch library. A section of build.toml with such a source has depends = ["torch"].

#pragma once

#if __has_include(<torch/headeronly/util/Half.h>)
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>
#else  // torch 2.8
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#endif

#include <cstdint>

#include "kernforge/dtype.h"

namespace kernforge {

template <class Run>
auto dispatch(DType dtype, const Run& run) {
  return dispatch_with<c10::Half, c10::BFloat16>(dtype, run);
}

// out[i] = op(in[i]...) for num_items elements of type T; an input may be the output.
template <class T, class Op, class... In>
void elementwise(const Op& op, int64_t num_items, void* out, const In*... in) {
  const auto loop = [&op, num_items](T* to, const auto*... from) {
    for (int64_t i = 0; i < num_items; ++i) {
      to[i] = static_cast<T>(op(static_cast<widened_t<T>>(from[i])...));
    }
  };
  loop(static_cast<T*>(out), static_cast<const T*>(in)...);
}

}  // namespace kernforge
