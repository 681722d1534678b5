// SPDX-License-Identifier: Apache-2.0
//
// The element types of the element-wise headers, as a kernel's header, its sources and its binding
// share them. Needs no torch header and no CUDA header.

#pragma once

// A formula that both the CPU's and the GPU's sources use is marked with this.
#if defined(__CUDACC__)
#define KERNFORGE_HOST_DEVICE __host__ __device__
#else
#define KERNFORGE_HOST_DEVICE
#endif

namespace kernforge {

enum class DType { kFloat32, kFloat16, kBFloat16, kFloat64 };

// What an element is computed in: float for all types but double.
template <class T>
struct Widened {
  using type = float;
};
template <>
struct Widened<double> {
  using type = double;
};
template <class T>
using widened_t = typename Widened<T>::type;

// Returns run(T{}) for the C++ type T of a dtype. `dispatch` of elementwise.h and of dtype.cuh
// fills in the half types of torch and of CUDA.
template <class Half, class BFloat16, class Run>
auto dispatch_with(DType dtype, const Run& run) {
  switch (dtype) {
    case DType::kFloat32:
      return run(float{});
    case DType::kFloat16:
      return run(Half{});
    case DType::kBFloat16:
      return run(BFloat16{});
    case DType::kFloat64:
      break;
  }
  return run(double{});
}

}  // namespace kernforge
