// SPDX-License-Identifier: Apache-2.0
//
// Which kernels compute the gradients of what.

#include <type_traits>

#include "backward.cuh"
#include "policy.cuh"

namespace layer_norm {
namespace {

using kernforge::Device;
using kernforge::launch;
using kernforge::launch_with_shared;

// Whether all rows are vectors of 16 bytes.
template <class T>
bool is_whole(const Backward& of) {
  constexpr int kLength = kernforge::kVectorLength<T>;
  return of.width % kLength == 0 && in_vectors<T, kLength>(of.x, 0) &&
         in_vectors<T, kLength>(of.dy, 0) && in_vectors<T, kLength>(of.dsum, 0) &&
         in_vectors<T, kLength>(of.dx, 0) && in_vectors<T, kLength>(of.weight, 0);
}

// Returns fused(length of a vector, Cut<...>{}) or, where two kernels read x and dy, apart(length).
template <class T, class Fused, class Apart>
auto with_path(const Backward& of, const Fused& fused, const Apart& apart) {
  const auto with_length = [&](auto length) {
    constexpr int kLength = decltype(length)::value;
    const auto otherwise = [&] { return apart(length); };
    if constexpr (sizeof(T) == 8) {
      return otherwise();
    } else {
      return gradient_cut<kLength>(
          of.width / kLength, [&](auto cut) { return fused(length, cut); }, otherwise);
    }
  };
  if (is_whole<T>(of)) {
    return with_length(std::integral_constant<int, kernforge::kVectorLength<T>>{});
  }
  return with_length(std::integral_constant<int, 1>{});
}

template <int kLength>
int64_t across(const Backward& of) {
  return parts(of.width, 32 * kColumns<kLength>);
}

// Blocks that leave parts of dweight and dbias.
template <class T>
int64_t blocks_of(const Backward& of, const Device& device) {
  return with_path<T>(
      of, [&](auto, auto cut) { return gradient_blocks<decltype(cut)>(of.rows, device); },
      [&](auto length) {
        return column_blocks(of.rows, across<decltype(length)::value>(of), device);
      });
}

template <class T>
cudaError_t run(const Backward& of, kernforge::widened_t<T>* scratch, const Device& device,
                cudaStream_t stream) {
  using A = kernforge::widened_t<T>;
  const bool wanted = of.dweight != nullptr || of.dbias != nullptr;
  const int64_t blocks = of.rows == 0 ? 0 : blocks_of<T>(of, device);
  cudaError_t error = cudaSuccess;
  if (blocks > 0) {
    const auto fused = [&](auto length, auto cut) {
      using C = decltype(cut);
      if constexpr (sizeof(T) < 8) {
        const Parts given = {of, scratch};
        const auto start = [&](auto kernel, int shared) {
          return launch_with_shared(device, stream, kernel, blocks, C::kThreads, shared, given);
        };
        constexpr int kLength = decltype(length)::value;
        const bool add = of.dsum != nullptr;
        if constexpr (C::kRows == 1 && kLength > 1) {
          constexpr int kStages = 2;
          const auto row = static_cast<int>(of.width * sizeof(T));
          if (copies(device)) {
            return add ? start(gradients<C, T, kLength, true, kStages>, 3 * kStages * row)
                       : start(gradients<C, T, kLength, false, kStages>, 2 * kStages * row);
          }
        }
        return add ? start(gradients<C, T, kLength, true, 0>, 0)
                   : start(gradients<C, T, kLength, false, 0>, 0);
      } else {
        return cudaErrorNotSupported;  // no cut is made for double
      }
    };
    const auto apart = [&](auto length) {
      constexpr int kLength = decltype(length)::value;
      const auto start = [&](auto lanes) {
        constexpr int kLanes = decltype(lanes)::value;
        return launch(device, stream, input_gradient<T, kLength, kLanes>,
                      parts(of.rows, Any<kLanes>::kRows), Any<kLanes>::kThreads, of);
      };
      cudaError_t failed;
      if constexpr (sizeof(T) == 8) {
        failed = with_lanes<T, kLength>(of.rows, of.width, start);
      } else {
        failed = start(std::integral_constant<int, 512>{});  // the widest rows alone
      }
      if (failed || !wanted) return failed;
      const auto columns = static_cast<unsigned>(across<kLength>(of));
      const Columns<T> given = {of, scratch, parts(of.rows, blocks), columns,
                                static_cast<unsigned>(blocks)};
      return launch(device, stream, weight_gradient<T, kLength>, columns * blocks, 256, given);
    };
    error = with_path<T>(of, fused, apart);
  }
  if (error || !wanted) return error;
  const auto columns = static_cast<unsigned>(parts(of.width, 32));
  const bool both = of.dweight != nullptr && of.dbias != nullptr;
  const Sums<A> sums = {scratch,  {of.dweight != nullptr ? of.dweight : of.dbias, of.dbias},
                        of.width, static_cast<int>(blocks),
                        columns,  of.float_weights};
  return launch(device, stream, sum_parts<T, A>, int64_t{columns} * (both ? 2 : 1), 256, sums);
}

}  // namespace

cudaError_t backward_scratch(DType dtype, const Backward& of, int64_t* count) {
  *count = 0;
  const int results = (of.dweight != nullptr) + (of.dbias != nullptr);
  if (of.rows == 0 || of.width == 0 || results == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  *count = results * of.width * kernforge::dispatch(dtype, [&](auto element) {
             return blocks_of<decltype(element)>(of, device);
           });
  return cudaSuccess;
}

cudaError_t backward_launch(DType dtype, const Backward& of, void* scratch, cudaStream_t stream) {
  if (of.width == 0) return cudaSuccess;
  Device device;
  if (const cudaError_t error = kernforge::current_device(&device)) return error;
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    return run<T>(of, static_cast<kernforge::widened_t<T>*>(scratch), device, stream);
  });
}

}  // namespace layer_norm
