// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind normalize_volume.h.

#include <atomic>
#include <cmath>

#include "../normalize_volume.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::packed;
using kernforge::ScalarType;
using kernforge::shape_of;
using kernforge::Tensor;
using normalize_volume::From;
using normalize_volume::Limits;
using normalize_volume::Moments;
using normalize_volume::Scaling;
using normalize_volume::Sums;
using normalize_volume::To;

[[noreturn]] void refuse(const std::string& why) {
  kernforge::value_error("normalize_volume: " + why);
}

From from_of(const Tensor& volume) {
  switch (volume.scalar_type()) {
    case ScalarType::Byte:
      return From::kUint8;
    case ScalarType::Short:
      return From::kInt16;
    case ScalarType::UInt16:
      return From::kUint16;
    default:
      refuse("volume must be uint8, int16 or uint16, got " +
             kernforge::name_of(volume.scalar_type()));
  }
}

To to_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return To::kFloat;
    case ScalarType::BFloat16:
      return To::kBfloat16;
    case ScalarType::Half:
      return To::kHalf;
    default:
      refuse("dtype must be float32, bfloat16 or float16, got " + kernforge::name_of(dtype));
  }
}

void check_shape(const Tensor& volume) {
  if (volume.dim() != 3 && volume.dim() != 4) {
    refuse("volume must be [Z, Y, X] or [N, Z, Y, X], got " + shape_of(volume));
  }
}

// 1 / scale and its products with 16-bit numbers stay finite.
void check_scale(double offset, double scale) {
  if (!(std::abs(offset) <= 1e30)) {
    refuse("the offset must be a number within 1e30, got " + std::to_string(offset));
  }
  if (!(scale >= 1e-30 && scale <= 1e30)) {
    refuse("the divisor must be from 1e-30 to 1e30, got " + std::to_string(scale));
  }
}

// Volumes of one size, one behind the other.
struct Batch {
  int64_t volumes, n;
};

Batch batch_of(const Tensor& volume) {
  check_shape(volume);
  const int64_t d = volume.dim();
  const Batch batch = {d == 4 ? volume.size(0) : 1,
                       volume.size(d - 3) * volume.size(d - 2) * volume.size(d - 1)};
  if (batch.n > normalize_volume::kMost) {
    refuse("sums of a volume of more than 2^34 voxels may not fit 64 bits, got " +
           shape_of(volume));
  }
  return batch;
}

Tensor result_of(const Tensor& volume, ScalarType dtype) {
  return kernforge::new_contiguous(volume, volume.sizes().data(), volume.dim(), dtype);
}

// [2] or [N, 2]: mean and deviation.
Tensor memory_for_moments(const Tensor& volume) {
  const int64_t sizes[] = {volume.size(0), 2};
  const bool batched = volume.dim() == 4;
  return kernforge::new_contiguous(volume, batched ? sizes : sizes + 1, batched ? 2 : 1,
                                   ScalarType::Double);
}

// What the caller gives: an offset and a divisor, and whether the result is clipped to [0, 1].
struct Given {
  Scaling by;
  Limits limits;
};

Given given(double offset, double scale, bool clip) {
  check_scale(offset, scale);
  const double whole = static_cast<float>(std::rint(offset));
  const Limits limits = clip ? Limits{0, 1} : Limits{-INFINITY, INFINITY};
  return {normalize_volume::scaling(whole, offset - whole, scale), limits};
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 15;  // voxels: some 10 us of one core, over a thread's start

void scale_range(const Tensor& volume, const Tensor& out, const Given& how, int64_t start,
                 int64_t n) {
  const From from = from_of(volume);
  const To to = to_of(out.scalar_type());
  torch::stable::parallel_for(start, start + n, kGrain, [&](int64_t begin, int64_t end) {
    normalize_volume::scale_cpu(from, to, kernforge::element(volume, begin),
                                kernforge::mutable_element(out, begin), how.by, how.limits,
                                end - begin);
  });
}

// Integers: what threads add in any order is the same sum.
Sums sums_range(const Tensor& volume, int64_t start, int64_t n) {
  const From from = from_of(volume);
  std::atomic<uint64_t> first{0}, second{0};
  torch::stable::parallel_for(start, start + n, kGrain, [&](int64_t begin, int64_t end) {
    const Sums part =
        normalize_volume::sums_cpu(from, kernforge::element(volume, begin), end - begin);
    first += part.first;
    second += part.second;
  });
  return {first, second};
}

Tensor normalize(const Tensor& volume, double offset, double scale, bool clip, ScalarType dtype) {
  from_of(volume), to_of(dtype), check_shape(volume);
  const Given how = given(offset, scale, clip);
  const Tensor in = packed(volume);
  Tensor out = result_of(in, dtype);
  scale_range(in, out, how, 0, in.numel());
  return out;
}

Tensor standardize(const Tensor& volume, ScalarType dtype) {
  const int bias = normalize_volume::bias_of(from_of(volume));
  to_of(dtype);
  const Batch batch = batch_of(volume);
  const Tensor in = packed(volume);
  Tensor out = result_of(in, dtype);
  const auto count = normalize_volume::counted(batch.n);
  for (int64_t i = 0; i < batch.volumes; ++i) {
    Moments moments;
    const Sums sums = sums_range(in, i * batch.n, batch.n);
    const Scaling by = normalize_volume::finish(sums, count, bias, &moments);
    scale_range(in, out, {by, {-INFINITY, INFINITY}}, i * batch.n, batch.n);
  }
  return out;
}

Tensor statistics(const Tensor& volume) {
  const int bias = normalize_volume::bias_of(from_of(volume));
  const Batch batch = batch_of(volume);
  const Tensor in = packed(volume);
  Tensor out = memory_for_moments(in);
  auto* moments = static_cast<Moments*>(out.mutable_data_ptr());
  const auto count = normalize_volume::counted(batch.n);
  for (int64_t i = 0; i < batch.volumes; ++i) {
    normalize_volume::finish(sums_range(in, i * batch.n, batch.n), count, bias, moments + i);
  }
  return out;
}

#elif defined(CUDA_KERNEL)

using normalize_volume::Workspace;

Tensor normalize(const Tensor& volume, double offset, double scale, bool clip, ScalarType dtype) {
  const From from = from_of(volume);
  const To to = to_of(dtype);
  check_shape(volume);
  const Given how = given(offset, scale, clip);
  const Tensor in = packed(volume);
  Tensor out = result_of(in, dtype);
  kernforge::on_device_of(in, "normalize_volume", [&](cudaStream_t stream) {
    return normalize_volume::scale_launch(from, to, in.const_data_ptr(), out.mutable_data_ptr(),
                                          how.by, how.limits, in.numel(), stream);
  });
  return out;
}

Tensor memory_for_workspaces(const Tensor& volume, const Batch& batch) {
  const int64_t count = normalize_volume::workspaces_for(batch.volumes, batch.n);
  const int64_t bytes = count * normalize_volume::kWorkspaceBytes;
  return kernforge::new_contiguous(volume, &bytes, 1, ScalarType::Byte);
}

Tensor standardize(const Tensor& volume, ScalarType dtype) {
  const From from = from_of(volume);
  const To to = to_of(dtype);
  const Batch batch = batch_of(volume);
  const Tensor in = packed(volume);
  Tensor out = result_of(in, dtype);
  Tensor work = memory_for_workspaces(in, batch);
  kernforge::on_device_of(in, "normalize_volume", [&](cudaStream_t stream) {
    return normalize_volume::standardize_launch(
        from, to, in.const_data_ptr(), out.mutable_data_ptr(),
        static_cast<Workspace*>(work.mutable_data_ptr()), batch.volumes, batch.n, stream);
  });
  return out;
}

Tensor statistics(const Tensor& volume) {
  const From from = from_of(volume);
  const Batch batch = batch_of(volume);
  const Tensor in = packed(volume);
  Tensor out = memory_for_moments(in);
  Tensor work = memory_for_workspaces(in, batch);
  kernforge::on_device_of(in, "normalize_volume", [&](cudaStream_t stream) {
    return normalize_volume::moments_launch(
        from, in.const_data_ptr(), static_cast<Moments*>(out.mutable_data_ptr()),
        static_cast<Workspace*>(work.mutable_data_ptr()), batch.volumes, batch.n, stream);
  });
  return out;
}

#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "normalize(Tensor volume, float offset, float scale, bool clip, ScalarType dtype) -> Tensor");
  ops.def("standardize(Tensor volume, ScalarType dtype) -> Tensor");
  ops.def("statistics(Tensor volume) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("normalize", TORCH_BOX(&normalize));
  ops.impl("standardize", TORCH_BOX(&standardize));
  ops.impl("statistics", TORCH_BOX(&statistics));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
