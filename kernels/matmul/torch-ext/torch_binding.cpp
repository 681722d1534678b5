// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind matmul.h, but for the
// products that are torch's own.

#include <optional>

#include "../matmul.h"
#include "kernforge/stable_products.h"
#include "registration.h"

namespace {

using kernforge::name_of;
using kernforge::ScalarType;
using kernforge::shape_of;
using kernforge::Tensor;
using matmul::Activation;
using matmul::Matmul;
using matmul::Matrices;
using matmul::Type;

using Optional = std::optional<Tensor>;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("matmul: " + why); }

bool is_fp8(ScalarType type) {
  return type == ScalarType::Float8_e4m3fn || type == ScalarType::Float8_e5m2;
}

Type type_of(const Tensor& t, const char* name) {
  switch (t.scalar_type()) {
    case ScalarType::Float:
      return Type::kFloat32;
    case ScalarType::Half:
      return Type::kFloat16;
    case ScalarType::BFloat16:
      return Type::kBFloat16;
    case ScalarType::Double:
      return Type::kFloat64;
    case ScalarType::Float8_e4m3fn:
      return Type::kE4M3;
    case ScalarType::Float8_e5m2:
      return Type::kE5M2;
    default:
      refuse(std::string(name) + " must be float32, float16, bfloat16 or float64, got " +
             name_of(t.scalar_type()));
  }
}

void check_device(const Tensor& t, const Tensor& a, const char* name) {
  kernforge::check_device(t, a, "matmul", name, "a");
}

void check_type(const Tensor& t, ScalarType type, const char* name) {
  kernforge::check_dtype(t, type, "matmul", name);
}

// Matrices of a tensor of two or three dimensions.
Matrices matrices_of(const Tensor& t) {
  const int64_t last = t.dim() - 1;
  const bool several = t.dim() == 3 && t.size(0) != 1;
  // Of one row or column the distance to the next says nothing.
  const int64_t row = t.size(last - 1) == 1 ? std::max<int64_t>(t.size(last), t.stride(last - 1))
                                            : t.stride(last - 1);
  const int64_t column = t.size(last) == 1 && t.stride(last - 1) != 1 ? 1 : t.stride(last);
  return {t.const_data_ptr(), row, column, several ? t.stride(0) : 0};
}

struct Given {
  const Tensor &a, &b;
  const Optional &bias, &residual, &scale_a, &scale_b;
  int64_t activation;
};

int64_t scale_stride(const Optional& scale, int64_t count, const char* name) {
  if (scale->numel() == 1) return 0;
  if (scale->dim() != 1 || scale->size(0) != count || scale->stride(0) != 1) {
    refuse(std::string(name) + " must have 1 number or be [" + std::to_string(count) +
           "] without gaps, got " + shape_of(*scale));
  }
  return 1;
}

// What is computed, once it is found to make sense; without the result.
Matmul described(const Given& given, ScalarType out) {
  const Tensor &a = given.a, &b = given.b;
  check_device(b, a, "b");
  const Type left = type_of(a, "a");
  const bool fp8 = is_fp8(a.scalar_type());
  if (fp8 ? !is_fp8(b.scalar_type()) : b.scalar_type() != a.scalar_type()) {
    refuse("b must be " + (fp8 ? std::string("of fp8") : name_of(a.scalar_type())) +
           " like a, got " + name_of(b.scalar_type()));
  }
  const int64_t dims = a.dim();
  if (dims != b.dim() || dims < 2 || dims > 3 || a.size(dims - 1) != b.size(dims - 2) ||
      (dims == 3 && a.size(0) != b.size(0))) {
    refuse("a must be [..., rows, depth] and b [..., depth, columns], got " + shape_of(a) +
           " and " + shape_of(b));
  }
  Matmul of{matrices_of(a),
            matrices_of(b),
            {},
            a.size(dims - 2),
            b.size(dims - 1),
            a.size(dims - 1),
            dims == 3 ? a.size(0) : 1,
            left,
            type_of(b, "b"),
            left,
            {}};
  for (const int64_t size : {of.rows, of.columns, of.depth, of.matrices}) {
    if (size > INT32_MAX) {
      refuse("each size must be below 2^31, got " + std::to_string(size));
    }
  }
  if (fp8) of.out = out == ScalarType::Half ? Type::kFloat16 : Type::kBFloat16;
  of.extras.activation = static_cast<Activation>(given.activation);
  if (given.bias) {
    check_device(*given.bias, a, "bias");
    check_type(*given.bias, out, "bias");
    if (given.bias->dim() != 1 || given.bias->size(0) != of.columns) {
      refuse("bias must be [" + std::to_string(of.columns) + "], got " + shape_of(*given.bias));
    }
    of.extras.bias = given.bias->const_data_ptr();
  }
  if (given.residual) {
    const Tensor& residual = *given.residual;
    check_device(residual, a, "residual");
    check_type(residual, out, "residual");
    bool same = residual.dim() == dims && residual.size(dims - 2) == of.rows &&
                residual.size(dims - 1) == of.columns;
    if (dims == 3) same = same && residual.size(0) == of.matrices;
    if (!same) {
      refuse("residual must be [..., " + std::to_string(of.rows) + ", " +
             std::to_string(of.columns) + "], got " + shape_of(residual));
    }
    of.extras.residual = matrices_of(residual);
  }
  if (fp8 != given.scale_a.has_value() || fp8 != given.scale_b.has_value()) {
    refuse("products of fp8 have two scales, others have none");
  }
  if (fp8) {
    for (const auto& [scale, name] :
         {std::pair{&given.scale_a, "scale_a"}, std::pair{&given.scale_b, "scale_b"}}) {
      check_device(**scale, a, name);
      check_type(**scale, ScalarType::Float, name);
    }
    of.extras.scale_a = static_cast<const float*>(given.scale_a->const_data_ptr());
    of.extras.scale_b = static_cast<const float*>(given.scale_b->const_data_ptr());
    of.extras.scale_a_stride = scale_stride(given.scale_a, of.rows, "scale_a");
    of.extras.scale_b_stride = scale_stride(given.scale_b, of.columns, "scale_b");
  }
  return of;
}

ScalarType type_of_result(const Tensor& a, bool half) {
  if (!is_fp8(a.scalar_type())) return a.scalar_type();
  return half ? ScalarType::Half : ScalarType::BFloat16;
}

Tensor result_of(const Tensor& a, const Matmul& of, ScalarType type) {
  const int64_t sizes[] = {of.matrices, of.rows, of.columns};
  const int64_t dims = a.dim();
  return kernforge::new_contiguous(a, sizes + (3 - dims), dims, type);
}

Optional packed(const Optional& t) { return t ? Optional(kernforge::packed(*t)) : t; }

Tensor as_float(const Tensor& t) {
  const kernforge::NoGradient guard;
  return torch::stable::to(t, ScalarType::Float);
}

#if defined(CUDA_KERNEL)

bool done_by_tiles(const Tensor& a, const Matmul& of, bool tf32) {
  bool ahead = false;
  kernforge::on_device_of(a, "matmul", [&](cudaStream_t stream) {
    const cudaError_t error = matmul::tiles_are_ahead(of, tf32, &ahead);
    return error || !ahead ? error : matmul::tiles_launch(of, stream);
  });
  return ahead;
}

void finish(const Tensor& a, const Matmul& of, const Tensor& product) {
  kernforge::on_device_of(a, "matmul", [&](cudaStream_t stream) {
    return matmul::finish_launch(of, product.const_data_ptr(), stream);
  });
}

#else

bool done_by_tiles(const Tensor&, const Matmul&, bool) { return false; }

void finish(const Tensor&, const Matmul& of, const Tensor& product) {
  const int64_t grain = std::max<int64_t>(1, (1 << 12) / of.columns);
  torch::stable::parallel_for(0, of.matrices * of.rows, grain, [&](int64_t first, int64_t last) {
    matmul::finish_cpu(of, product.const_data_ptr(), first, last);
  });
}

#endif

// `fresh`: out is ours, without gaps. The product is torch's where tiles are not ahead.
void compute(const Tensor& a, const Given& given, Matmul of, bool tf32, const Tensor& out,
             bool fresh) {
  if (of.matrices == 0 || of.rows == 0 || of.columns == 0) return;
  of.c = matrices_of(out);
  if (done_by_tiles(a, of, tf32)) return;
  if (is_fp8(a.scalar_type())) {  // exact in float
    const Tensor product = result_of(a, of, ScalarType::Float);
    kernforge::product_into(product, as_float(a), as_float(given.b));
    return finish(a, of, product);
  }
  Optional added;
  if (out.dim() == 2 && given.bias) {  // to one matrix torch adds it
    added = given.bias, of.extras.bias = nullptr;
  }
  const bool follows = of.extras.any();
  const Tensor product = fresh || !follows ? out : result_of(a, of, out.scalar_type());
  kernforge::product_into(product, a, given.b, added);
  if (follows) finish(a, of, product);
}

Tensor forward(const Tensor& a, const Tensor& b, const Optional& bias, const Optional& residual,
               const Optional& scale_a, const Optional& scale_b, int64_t activation, bool half,
               bool tf32) {
  const Optional added = packed(bias);
  const Given given{a, b, added, residual, scale_a, scale_b, activation};
  const ScalarType type = type_of_result(a, half);
  const Matmul of = described(given, type);
  Tensor out = result_of(a, of, type);
  compute(a, given, of, tf32, out, true);
  return out;
}

void into(const Tensor& a, const Tensor& b, const Optional& bias, const Optional& residual,
          const Optional& scale_a, const Optional& scale_b, int64_t activation, bool tf32,
          Tensor out) {
  const Optional added = packed(bias);
  const Given given{a, b, added, residual, scale_a, scale_b, activation};
  const Matmul of = described(given, out.scalar_type());
  check_device(out, a, "out");
  if (!is_fp8(a.scalar_type())) check_type(out, a.scalar_type(), "out");
  if (is_fp8(a.scalar_type()) && out.scalar_type() != ScalarType::BFloat16) {
    check_type(out, ScalarType::Half, "out");
  }
  bool same = out.dim() == a.dim() && out.size(out.dim() - 2) == of.rows &&
              out.size(out.dim() - 1) == of.columns;
  if (same && out.dim() == 3) same = out.size(0) == of.matrices;
  if (!same) {
    refuse("out must be [..., " + std::to_string(of.rows) + ", " + std::to_string(of.columns) +
           "], got " + shape_of(out));
  }
  compute(a, given, of, tf32, out, false);
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "matmul(Tensor a, Tensor b, Tensor? bias, Tensor? residual, Tensor? scale_a,"
      " Tensor? scale_b, int activation, bool half, bool tf32) -> Tensor");
  ops.def(
      "matmul_into(Tensor a, Tensor b, Tensor? bias, Tensor? residual, Tensor? scale_a,"
      " Tensor? scale_b, int activation, bool tf32, Tensor(a!) out) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("matmul", TORCH_BOX(&forward));
  ops.impl("matmul_into", TORCH_BOX(&into));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
