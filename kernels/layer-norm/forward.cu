// SPDX-License-Identifier: Apache-2.0
//
// Which kernel normalizes what.

#include "forward.cuh"
#include "policy.cuh"

namespace layer_norm {
namespace {

template <class T, int kLength>
cudaError_t any_row(const Forward& of, const kernforge::Device& device, cudaStream_t stream) {
  return with_lanes<T, kLength>(of.rows, of.width, [&](auto lanes) {
    constexpr int kLanes = decltype(lanes)::value;
    const int64_t blocks = parts(of.rows, Any<kLanes>::kRows);
    return kernforge::launch(device, stream, of_any<T, kLength, kLanes>, blocks,
                             Any<kLanes>::kThreads, of);
  });
}

template <class T, int kLength>
bool is_whole(const Forward& of) {
  return of.width % kLength == 0 && in_vectors<T, kLength>(of.x, of.x_stride) &&
         in_vectors<T, kLength>(of.residual, of.residual_stride) &&
         in_vectors<T, kLength>(of.y, 0) && in_vectors<T, kLength>(of.sum, 0) &&
         in_vectors<T, kLength>(of.weight, 0) && in_vectors<T, kLength>(of.bias, 0);
}

template <class T>
cudaError_t rows_of(const Forward& of, const kernforge::Device& device, cudaStream_t stream) {
  constexpr int kLength = kernforge::kVectorLength<T>;
  if (!is_whole<T, kLength>(of)) {
    if constexpr (sizeof(T) == 2) {
      if (is_whole<T, 4>(of)) return any_row<T, 4>(of, device, stream);
    }
    return any_row<T, 1>(of, device, stream);
  }
  const auto otherwise = [&] { return any_row<T, kLength>(of, device, stream); };
  if constexpr (sizeof(T) == 8) {
    return otherwise();
  } else {
    const auto with_cut = [&](auto cut) {
      using C = decltype(cut);
      const int64_t blocks = parts(of.rows, C::kRows);
      const Rows given = {of, 1.f / static_cast<float>(of.width), static_cast<float>(of.eps)};
      if (of.residual != nullptr) {
        return kernforge::launch(device, stream, of_rows<C, T, true>, blocks, C::kThreads, given);
      }
      return kernforge::launch(device, stream, of_rows<C, T, false>, blocks, C::kThreads, given);
    };
    return forward_cut(of.width / kLength, with_cut, otherwise);
  }
}

}  // namespace

cudaError_t forward_launch(DType dtype, const Forward& of, cudaStream_t stream) {
  if (of.rows == 0 || of.width == 0) return cudaSuccess;
  kernforge::Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return kernforge::dispatch(
      dtype, [&](auto element) { return rows_of<decltype(element)>(of, device, stream); });
}

}  // namespace layer_norm
