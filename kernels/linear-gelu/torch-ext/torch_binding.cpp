// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, layout, allocation, stream, registration. On torch's stable
// ABI, so one build serves every torch from 2.10 on. All arithmetic is behind linear_gelu.h, but
// for the products that are torch's own.

#include <optional>
#include <tuple>

#include "../linear_gelu.h"
#include "kernforge/stable_products.h"
#include "registration.h"

namespace {

using kernforge::DType;
using kernforge::packed;
using kernforge::shape_of;
using kernforge::Tensor;
using linear_gelu::Formula;

using Bias = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("linear_gelu: " + why); }

Formula formula_of(bool by_tanh) { return by_tanh ? Formula::kTanh : Formula::kErf; }

// That `t` has the dtype and the device of `x`.
void check_like(const Tensor& t, const Tensor& x, const char* name, const char* like) {
  kernforge::check_dtype(t, x.scalar_type(), "linear_gelu", name, like);
  kernforge::check_device(t, x, "linear_gelu", name, like);
}

struct Sizes {
  int64_t rows, columns, depth;
};

Sizes sizes_of(const Tensor& x, const Tensor& weight, const Bias& bias) {
  check_like(weight, x, "weight", "x");
  if (weight.dim() != 2) {
    refuse("weight must be [out_features, in_features], got " + shape_of(weight));
  }
  const int64_t columns = weight.size(0), depth = weight.size(1);
  if (x.dim() < 1 || x.size(x.dim() - 1) != depth) {
    refuse("the last dimension of x must be in_features of weight, " + std::to_string(depth) +
           ", got " + shape_of(x));
  }
  if (bias) {
    check_like(*bias, x, "bias", "x");
    if (bias->dim() != 1 || bias->size(0) != columns) {
      refuse("bias must be [" + std::to_string(columns) + "], got " + shape_of(*bias));
    }
  }
  int64_t rows = 1;
  for (int64_t i = 0; i + 1 < x.dim(); ++i) rows *= x.size(i);
  for (const int64_t size : {rows, columns, depth}) {
    if (size > INT32_MAX) {
      refuse("each of rows, in_features and out_features must be below 2^31, got " +
             std::to_string(size));
    }
  }
  return {rows, columns, depth};
}

Tensor result_of(const Tensor& x, int64_t columns) {
  int64_t sizes[64];
  std::copy(x.sizes().begin(), x.sizes().end(), sizes);
  sizes[x.dim() - 1] = columns;
  return kernforge::new_contiguous(x, sizes, x.dim(), x.scalar_type());
}

// Of the gradient: matrices without gaps, [rows, columns].
void check_gradient(const Tensor& grad, const Tensor& z) {
  check_like(grad, z, "grad", "z");
  bool same = grad.dim() == z.dim() && z.dim() == 2;
  for (int64_t i = 0; same && i < 2; ++i) same = grad.size(i) == z.size(i);
  if (!same) {
    refuse("grad must have the shape of z " + shape_of(z) + ", a matrix, got " + shape_of(grad));
  }
}

// For the sums of z's columns, or for none.
Tensor memory_for_sums(const Tensor& z, bool wanted) {
  const int64_t columns = wanted ? z.size(1) : 0;
  return kernforge::new_contiguous(z, &columns, 1, z.scalar_type());
}

#if defined(CUDA_KERNEL)

using linear_gelu::Path;

// By a kernel of ours, where one is not slower than torch.
bool done(const Tensor& x, const Tensor& weight, const Bias& bias, const Sizes& sizes, bool by_tanh,
          bool tf32, const Tensor& y, const Tensor* z) {
  const int64_t x_stride = kernforge::row_stride(x), w_stride = kernforge::row_stride(weight);
  if (x_stride < 0 || w_stride < 0) return false;
  const DType dtype = kernforge::dtype_of(x, "linear_gelu: x");
  const Bias added = bias ? Bias(packed(*bias)) : bias;
  const linear_gelu::Linear of = {x.const_data_ptr(),
                                  weight.const_data_ptr(),
                                  added ? added->const_data_ptr() : nullptr,
                                  y.mutable_data_ptr(),
                                  z ? z->mutable_data_ptr() : nullptr,
                                  sizes.rows,
                                  sizes.columns,
                                  sizes.depth,
                                  x_stride,
                                  w_stride};
  Path path;
  kernforge::on_device_of(x, "linear_gelu", [&](cudaStream_t stream) {
    const cudaError_t error = linear_gelu::path_of(dtype, tf32, of, &path);
    if (error || path == Path::kTorch) return error;
    return linear_gelu::linear_launch(dtype, formula_of(by_tanh), tf32, of, path, stream);
  });
  return path != Path::kTorch;
}

void gelu(DType dtype, bool by_tanh, const Tensor& z, const Tensor& y) {
  kernforge::on_device_of(y, "linear_gelu", [&](cudaStream_t stream) {
    return linear_gelu::gelu_launch(dtype, formula_of(by_tanh), z.const_data_ptr(),
                                    y.mutable_data_ptr(), y.numel(), stream);
  });
}

Two backward(const Tensor& grad, const Tensor& z, bool by_tanh, bool with_sums) {
  const DType dtype = kernforge::dtype_of(z, "linear_gelu: z");
  check_gradient(grad, z);
  const Tensor dy = packed(grad), at = packed(z);
  Tensor dz = kernforge::new_like(at);
  Tensor sums = memory_for_sums(z, with_sums);
  const linear_gelu::Slope of = {dy.const_data_ptr(),
                                 at.const_data_ptr(),
                                 dz.mutable_data_ptr(),
                                 with_sums ? sums.mutable_data_ptr() : nullptr,
                                 z.size(0),
                                 z.size(1)};
  kernforge::on_device_of(z, "linear_gelu", [&](cudaStream_t stream) {
    const int64_t doubles = linear_gelu::slope_scratch(of);
    const Tensor scratch =
        kernforge::new_contiguous(z, &doubles, 1, torch::headeronly::ScalarType::Double);
    return linear_gelu::slope_launch(dtype, formula_of(by_tanh), of, scratch.mutable_data_ptr(),
                                     stream);
  });
  return {dz, sums};
}

#else

constexpr int64_t kGrain = 1 << 12;  // elements: some 20 us of one core, over a thread's start

bool done(const Tensor&, const Tensor&, const Bias&, const Sizes&, bool, bool, const Tensor&,
          const Tensor*) {
  return false;
}

void gelu(DType dtype, bool by_tanh, const Tensor& z, const Tensor& y) {
  torch::stable::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    linear_gelu::gelu_cpu(dtype, formula_of(by_tanh), kernforge::element(z, begin),
                          kernforge::mutable_element(y, begin), end - begin);
  });
}

Two backward(const Tensor& grad, const Tensor& z, bool by_tanh, bool with_sums) {
  const kernforge::NoGradient guard;
  const DType dtype = kernforge::dtype_of(z, "linear_gelu: z");
  check_gradient(grad, z);
  const Tensor dy = packed(grad), at = packed(z);
  Tensor dz = kernforge::new_like(at);
  torch::stable::parallel_for(0, dz.numel(), kGrain, [&](int64_t begin, int64_t end) {
    linear_gelu::slope_cpu(dtype, formula_of(by_tanh), kernforge::element(dy, begin),
                           kernforge::element(at, begin), kernforge::mutable_element(dz, begin),
                           end - begin);
  });
  if (!with_sums) return {dz, memory_for_sums(z, false)};
  const int64_t rows = 0;
  return {dz, torch::stable::sum(dz, torch::headeronly::IntHeaderOnlyArrayRef(&rows, 1))};
}

#endif

// y, and z where it is kept, else y again.
Two run(const Tensor& x, const Tensor& weight, const Bias& bias, bool by_tanh, bool tf32,
        bool keep) {
  const DType dtype = kernforge::dtype_of(x, "linear_gelu: x");
  const Sizes of = sizes_of(x, weight, bias);
  const Tensor y = result_of(x, of.columns), z = keep ? result_of(x, of.columns) : y;
  if (of.rows == 0 || of.columns == 0) return {y, z};
  if (done(x, weight, bias, of, by_tanh, tf32, y, keep ? &z : nullptr)) return {y, z};
  const int64_t stride = kernforge::row_stride(x);
  const Tensor rows = stride < 0 && x.dim() != 2 ? packed(x) : x;
  kernforge::product_into(kernforge::matrix_of(z, of.rows, of.columns, of.columns, 1),
                          x.dim() == 2 ? x
                                       : kernforge::matrix_of(rows, of.rows, of.depth,
                                                              stride < 0 ? of.depth : stride, 1),
                          kernforge::transposed(weight), bias);
  gelu(dtype, by_tanh, z, y);
  return {y, z};
}

Tensor forward(const Tensor& x, const Tensor& weight, const Bias& bias, bool by_tanh, bool tf32) {
  return std::get<0>(run(x, weight, bias, by_tanh, tf32, false));
}

Two forward_kept(const Tensor& x, const Tensor& weight, const Bias& bias, bool by_tanh, bool tf32) {
  return run(x, weight, bias, by_tanh, tf32, true);
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("linear_gelu(Tensor x, Tensor weight, Tensor? bias, bool by_tanh, bool tf32) -> Tensor");
  ops.def(
      "linear_gelu_kept(Tensor x, Tensor weight, Tensor? bias, bool by_tanh, bool tf32)"
      " -> (Tensor, Tensor)");
  ops.def("gelu_backward(Tensor grad, Tensor z, bool by_tanh, bool sums) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("linear_gelu", TORCH_BOX(&forward));
  ops.impl("linear_gelu_kept", TORCH_BOX(&forward_kept));
  ops.impl("gelu_backward", TORCH_BOX(&backward));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
