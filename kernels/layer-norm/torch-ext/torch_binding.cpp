// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, layout, allocation, stream, registration. On torch's stable
// ABI, so one build serves every torch from 2.10 on. All arithmetic is behind layer_norm.h.

#include <optional>
#include <tuple>

#include "../layer_norm.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::DType;
using kernforge::name_of;
using kernforge::packed;
using kernforge::ScalarType;
using kernforge::shape_of;
using kernforge::Tensor;

using Maybe = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("layer_norm: " + why); }

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

void check_device(const Tensor& t, const Tensor& x, const char* name) {
  kernforge::check_device(t, x, "layer_norm", name, "x");
}

// That t has the dtype, device and shape of x.
void check_like(const Tensor& t, const Tensor& x, const char* name) {
  check_device(t, x, name);
  kernforge::check_dtype(t, x.scalar_type(), "layer_norm", name, "x");
  kernforge::check_shape(t, x, "layer_norm", name, "x");
}

struct Sizes {
  int64_t rows, width;
};

Sizes sizes_of(const Tensor& x) {
  if (x.dim() < 1) refuse("x must have a dimension to normalize, got " + shape_of(x));
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) rows *= x.size(i);
  const int64_t width = x.size(x.dim() - 1);
  for (const int64_t size : {rows, width}) {
    if (size > INT32_MAX) {
      refuse("rows and the last dimension must be below 2^31, got " + std::to_string(size));
    }
  }
  return {rows, width};
}

// Whether weight and bias are float where x is not.
bool float_weights(const Tensor& x, DType dtype, const Maybe& weight, const Maybe& bias) {
  const int64_t width = x.size(x.dim() - 1);
  const auto check = [&](const Maybe& t, const char* name) {
    if (!t) return;
    check_device(*t, x, name);
    if (t->dim() != 1 || t->size(0) != width) {
      refuse(std::string(name) + " must be [" + std::to_string(width) + "], got " + shape_of(*t));
    }
    const ScalarType type = t->scalar_type();
    if (type != x.scalar_type() && !(is_half(dtype) && type == ScalarType::Float)) {
      refuse(std::string(name) + " must be " + name_of(x.scalar_type()) + " like x" +
             (is_half(dtype) ? " or Float" : "") + ", got " + name_of(type));
    }
  };
  check(weight, "weight"), check(bias, "bias");
  if (weight && bias && weight->scalar_type() != bias->scalar_type()) {
    refuse("bias must be " + name_of(weight->scalar_type()) + " like weight, got " +
           name_of(bias->scalar_type()));
  }
  const Maybe& one = weight ? weight : bias;
  return one && one->scalar_type() == ScalarType::Float;
}

Maybe packed_if(const Maybe& t) { return t ? Maybe(packed(*t)) : t; }

const void* address(const Maybe& t) { return t ? t->const_data_ptr() : nullptr; }

Tensor result_of(const Tensor& x) {
  return kernforge::new_contiguous(x, x.sizes().data(), x.dim(), x.scalar_type());
}

ScalarType type_of_statistics(DType dtype) {
  return dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

// [2, rows], means and 1 / deviation, or of RMSNorm [1, rows].
Tensor memory_for_statistics(const Tensor& x, DType dtype, int64_t rows, bool rms) {
  const int64_t sizes[] = {rms ? 1 : 2, rows};
  return kernforge::new_contiguous(x, sizes, 2, type_of_statistics(dtype));
}

// [width] like `weight`, or nothing.
Tensor memory_for_gradient(const Tensor& x, const Maybe& weight, bool wanted) {
  const int64_t width = wanted ? x.size(x.dim() - 1) : 0;
  return kernforge::new_contiguous(x, &width, 1, weight ? weight->scalar_type() : x.scalar_type());
}

#if defined(CUDA_KERNEL)

void compute(DType dtype, const layer_norm::Forward& of, const Tensor& x) {
  kernforge::on_device_of(x, "layer_norm", [&](cudaStream_t stream) {
    return layer_norm::forward_launch(dtype, of, stream);
  });
}

void compute(DType dtype, const layer_norm::Backward& of, const Tensor& x) {
  kernforge::on_device_of(x, "layer_norm", [&](cudaStream_t stream) {
    int64_t count = 0;
    if (const cudaError_t error = layer_norm::backward_scratch(dtype, of, &count)) return error;
    const Tensor scratch = kernforge::new_contiguous(x, &count, 1, type_of_statistics(dtype));
    return layer_norm::backward_launch(dtype, of, scratch.mutable_data_ptr(), stream);
  });
}

#else

constexpr int64_t kGrain = 1 << 14;  // elements: some 10 us of one core, over a thread's start

int64_t grain_of(int64_t each) { return std::max<int64_t>(1, kGrain / std::max<int64_t>(each, 1)); }

void compute(DType dtype, const layer_norm::Forward& of, const Tensor&) {
  torch::stable::parallel_for(0, of.rows, grain_of(of.width), [&](int64_t first, int64_t last) {
    layer_norm::forward_cpu(dtype, of, first, last);
  });
}

void compute(DType dtype, const layer_norm::Backward& of, const Tensor&) {
  torch::stable::parallel_for(0, of.rows, grain_of(of.width), [&](int64_t first, int64_t last) {
    layer_norm::input_gradient_cpu(dtype, of, first, last);
  });
  if (of.dweight == nullptr && of.dbias == nullptr) return;
  torch::stable::parallel_for(0, of.width, std::max<int64_t>(64, grain_of(of.rows)),
                              [&](int64_t first, int64_t last) {
                                layer_norm::weight_gradient_cpu(dtype, of, first, last);
                              });
}

#endif

// y, the sum where there is a residual, and the statistics where they are kept.
struct Results {
  Tensor y;
  Maybe sum, statistics;
};

Results run(const Tensor& x, const Maybe& residual, const Maybe& weight, const Maybe& bias,
            double eps, bool rms, bool keep) {
  const DType dtype = kernforge::dtype_of(x, "layer_norm: x");
  const Sizes sizes = sizes_of(x);
  const bool in_float = float_weights(x, dtype, weight, bias);
  if (residual) check_like(*residual, x, "residual");
  const int64_t x_stride = kernforge::row_stride(x);
  const int64_t r_stride = residual ? kernforge::row_stride(*residual) : 0;
  const Tensor rows = x_stride < 0 ? torch::stable::contiguous(x) : x;
  const Maybe added =
      residual && r_stride < 0 ? Maybe(torch::stable::contiguous(*residual)) : residual;
  const Maybe scale = packed_if(weight), offset = packed_if(bias);
  Results made = {result_of(x), std::nullopt, std::nullopt};
  if (residual) made.sum = result_of(x);
  if (keep) made.statistics = memory_for_statistics(x, dtype, sizes.rows, rms);
  const layer_norm::Forward of = {rows.const_data_ptr(),
                                  address(added),
                                  address(scale),
                                  address(offset),
                                  made.y.mutable_data_ptr(),
                                  made.sum ? made.sum->mutable_data_ptr() : nullptr,
                                  keep ? made.statistics->mutable_data_ptr() : nullptr,
                                  sizes.rows,
                                  sizes.width,
                                  x_stride < 0 ? sizes.width : x_stride,
                                  r_stride < 0 ? sizes.width : r_stride,
                                  eps,
                                  rms,
                                  in_float};
  compute(dtype, of, x);
  return made;
}

Tensor norm(const Tensor& x, const Maybe& weight, const Maybe& bias, double eps, bool rms) {
  return run(x, std::nullopt, weight, bias, eps, rms, false).y;
}

Two norm_kept(const Tensor& x, const Maybe& weight, const Maybe& bias, double eps, bool rms) {
  const Results made = run(x, std::nullopt, weight, bias, eps, rms, true);
  return {made.y, *made.statistics};
}

Two add_norm(const Tensor& x, const Tensor& residual, const Maybe& weight, const Maybe& bias,
             double eps, bool rms) {
  const Results made = run(x, residual, weight, bias, eps, rms, false);
  return {made.y, *made.sum};
}

Three add_norm_kept(const Tensor& x, const Tensor& residual, const Maybe& weight, const Maybe& bias,
                    double eps, bool rms) {
  const Results made = run(x, residual, weight, bias, eps, rms, true);
  return {made.y, *made.sum, *made.statistics};
}

Three norm_backward(const Tensor& dy, const Maybe& dsum, const Tensor& x, const Maybe& weight,
                    const Maybe& bias, const Tensor& statistics, bool rms, bool wants_weight,
                    bool wants_bias) {
  const DType dtype = kernforge::dtype_of(x, "layer_norm: x");
  const Sizes sizes = sizes_of(x);
  const bool in_float = float_weights(x, dtype, weight, bias);
  check_like(dy, x, "dy");
  if (dsum) check_like(*dsum, x, "dsum");
  const int64_t kept = rms ? 1 : 2;
  check_device(statistics, x, "statistics");
  if (statistics.scalar_type() != type_of_statistics(dtype) || statistics.dim() != 2 ||
      statistics.size(0) != kept || statistics.size(1) != sizes.rows ||
      !statistics.is_contiguous()) {
    refuse("statistics must be as they were kept, [" + std::to_string(kept) + ", " +
           std::to_string(sizes.rows) + "], got " + shape_of(statistics));
  }
  const Tensor rows = packed(x), grad = packed(dy);
  const Maybe more = packed_if(dsum), scale = packed_if(weight);
  Tensor dx = result_of(x);
  Tensor dweight = memory_for_gradient(x, weight, wants_weight);
  Tensor dbias = memory_for_gradient(x, bias, wants_bias);
  const layer_norm::Backward of = {grad.const_data_ptr(),
                                   address(more),
                                   rows.const_data_ptr(),
                                   address(scale),
                                   statistics.const_data_ptr(),
                                   dx.mutable_data_ptr(),
                                   wants_weight ? dweight.mutable_data_ptr() : nullptr,
                                   wants_bias ? dbias.mutable_data_ptr() : nullptr,
                                   sizes.rows,
                                   sizes.width,
                                   rms,
                                   in_float};
  compute(dtype, of, x);
  return {dx, dweight, dbias};
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("norm(Tensor x, Tensor? weight, Tensor? bias, float eps, bool rms) -> Tensor");
  ops.def(
      "norm_kept(Tensor x, Tensor? weight, Tensor? bias, float eps, bool rms)"
      " -> (Tensor, Tensor)");
  ops.def(
      "add_norm(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps, bool rms)"
      " -> (Tensor, Tensor)");
  ops.def(
      "add_norm_kept(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps, bool rms)"
      " -> (Tensor, Tensor, Tensor)");
  ops.def(
      "norm_backward(Tensor dy, Tensor? dsum, Tensor x, Tensor? weight, Tensor? bias,"
      " Tensor statistics, bool rms, bool wants_weight, bool wants_bias)"
      " -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("norm", TORCH_BOX(&norm));
  ops.impl("norm_kept", TORCH_BOX(&norm_kept));
  ops.impl("add_norm", TORCH_BOX(&add_norm));
  ops.impl("add_norm_kept", TORCH_BOX(&add_norm_kept));
  ops.impl("norm_backward", TORCH_BOX(&norm_backward));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
