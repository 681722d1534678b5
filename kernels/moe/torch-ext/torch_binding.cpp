// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, allocation, stream, registration. On torch's stable ABI, so
// one build serves every torch from 2.10 on. All arithmetic is behind moe.h; on CPUs the products
// are torch's own.

#include <array>
#include <cstring>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

#include "../moe.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using kernforge::device_of;
using kernforge::DType;
using kernforge::name_of;
using kernforge::packed;
using kernforge::shape_of;
using kernforge::Tensor;
using torch::headeronly::ScalarType;

using Two = std::tuple<Tensor, Tensor>;
using Five = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("moe: " + why); }

void check_device(const Tensor& t, const Tensor& x, const char* name) {
  kernforge::check_device(t, x, "moe", name, "x");
}

void check_shape(const Tensor& t, std::initializer_list<int64_t> sizes, const char* name) {
  bool same = t.dim() == static_cast<int64_t>(sizes.size());
  std::string want;
  int64_t i = 0;
  for (const int64_t size : sizes) {
    same = same && t.size(i++) == size;
    want += (want.empty() ? "" : ", ") + std::to_string(size);
  }
  if (!same) refuse(std::string(name) + " must be [" + want + "], got " + shape_of(t));
}

// Of the weights of experts.
ScalarType weights_of(DType dtype) {
  return dtype == DType::kFloat64 ? ScalarType::Double : ScalarType::Float;
}

DType checked_dtype(const Tensor& t, const char* what) {
  const DType dtype = kernforge::dtype_of(t, what);
  if (dtype == DType::kFloat64 && !t.is_cpu()) {
    refuse("float64 is computed on CPUs only, got a tensor on " + device_of(t));
  }
  return dtype;
}

Tensor new_ids(const Tensor& like, const int64_t* sizes) {
  return kernforge::new_strided(like, sizes, std::array<int64_t, 2>{sizes[1], 1}.data(), 2,
                                aoti_torch_dtype_int32());
}

// The same in one dimension.
Tensor new_numbers(const Tensor& like, int64_t size) {
  const int64_t stride = 1;
  return kernforge::new_strided(like, &size, &stride, 1, aoti_torch_dtype_int32());
}

const int32_t* ids_in(const Tensor& t) { return static_cast<const int32_t*>(t.const_data_ptr()); }
int32_t* ids_of(const Tensor& t) { return static_cast<int32_t*>(t.mutable_data_ptr()); }

void check_ids(const Tensor& t, const Tensor& x, int64_t dims, const char* name) {
  check_device(t, x, name);
  if (t.scalar_type() != ScalarType::Int || t.dim() != dims) {
    refuse(std::string(name) + " must be Int of " + std::to_string(dims) + " dimensions, got " +
           name_of(t.scalar_type()) + " " + shape_of(t));
  }
}

void check_like(const Tensor& t, const Tensor& x, ScalarType type, const char* name) {
  check_device(t, x, name);
  kernforge::check_dtype(t, type, "moe", name);
}

struct Routed {
  DType dtype;
  moe::Route of;
  Tensor logits, weights, ids;
  std::optional<Tensor> bias;
};

Routed routed(const Tensor& logits, const std::optional<Tensor>& bias, int64_t top, bool sigmoid,
              bool normalize, double scale, int64_t groups, int64_t top_groups) {
  const DType dtype = checked_dtype(logits, "moe: router_logits");
  if (logits.dim() != 2) refuse("router_logits must be [tokens, experts], got " + shape_of(logits));
  const int64_t tokens = logits.size(0), experts = logits.size(1);
  const auto within = [](int64_t v, int64_t most, const char* name) {
    if (v < 1 || v > most) {
      refuse(std::string(name) + " must be from 1 to " + std::to_string(most) + ", got " +
             std::to_string(v));
    }
  };
  within(experts, moe::kMostExperts, "the number of experts");
  within(groups, std::min<int64_t>(experts, 32), "groups");
  if (experts % groups != 0) {
    refuse("groups must divide the " + std::to_string(experts) + " experts, got " +
           std::to_string(groups));
  }
  within(top_groups, groups, "top_groups");
  within(top, std::min<int64_t>(experts / groups * top_groups, moe::kMostTop), "top_k");
  if (bias) {
    check_device(*bias, logits, "bias");
    if (bias->scalar_type() != ScalarType::Float) {
      refuse("bias must be Float, got " + name_of(bias->scalar_type()));
    }
    check_shape(*bias, {experts}, "bias");
  }
  const int64_t sizes[] = {tokens, top};
  Routed all{dtype,
             {},
             packed(logits),
             kernforge::new_contiguous(logits, sizes, 2, weights_of(dtype)),
             new_ids(logits, sizes),
             bias ? std::optional<Tensor>(packed(*bias)) : bias};
  all.of = {all.logits.const_data_ptr(),
            bias ? static_cast<const float*>(all.bias->const_data_ptr()) : nullptr,
            all.weights.mutable_data_ptr(),
            static_cast<int32_t*>(all.ids.mutable_data_ptr()),
            tokens,
            static_cast<int>(experts),
            static_cast<int>(top),
            static_cast<int>(groups),
            static_cast<int>(top_groups),
            sigmoid,
            normalize,
            static_cast<float>(scale)};
  return all;
}

// Of weights of 8 bits.
struct Factors {
  Tensor w1, w2;
};

struct Given {
  DType dtype;
  moe::Experts of;
  Tensor x, weights, ids, w1, w2, y;
  std::optional<Factors> factors;
};

Given given(const Tensor& x, const Tensor& weights, const Tensor& ids, const Tensor& w1,
            const Tensor& w2, const std::optional<Factors>& factors = std::nullopt) {
  const DType dtype = checked_dtype(x, "moe: x");
  if (x.dim() != 2) refuse("x must be [tokens, width], got " + shape_of(x));
  const int64_t tokens = x.size(0), width = x.size(1);
  for (const auto& [t, name] : {std::pair{&w1, "w1"}, {&w2, "w2"}}) {
    check_device(*t, x, name);
    const ScalarType want = factors ? ScalarType::Float8_e4m3fn : x.scalar_type();
    if (t->scalar_type() != want) {
      refuse(std::string(name) + " must be " + name_of(want) +
             (factors ? " with factors" : " like x") + ", got " + name_of(t->scalar_type()));
    }
  }
  if (factors && dtype == DType::kFloat64) {
    refuse("with factors x must be float32, float16 or bfloat16, got Double");
  }
  check_device(weights, x, "weights");
  check_device(ids, x, "ids");
  if (w2.dim() != 3) refuse("w2 must be [experts, width, inner], got " + shape_of(w2));
  const int64_t experts = w2.size(0), inner = w2.size(2);
  check_shape(w2, {experts, width, inner}, "w2");
  check_shape(w1, {experts, 2 * inner, width}, "w1");
  if (weights.scalar_type() != weights_of(dtype)) {
    refuse("weights must be " + name_of(weights_of(dtype)) + ", got " +
           name_of(weights.scalar_type()));
  }
  if (ids.scalar_type() != ScalarType::Int) {
    refuse("ids must be Int, got " + name_of(ids.scalar_type()));
  }
  if (ids.dim() != 2 || ids.size(0) != tokens) {
    refuse("ids must be [" + std::to_string(tokens) + ", top_k], got " + shape_of(ids));
  }
  const int64_t top = ids.size(1);
  check_shape(weights, {tokens, top}, "weights");
  if (experts < 1 || experts > moe::kMostExperts) {
    refuse("the number of experts must be from 1 to " + std::to_string(moe::kMostExperts) +
           ", got " + std::to_string(experts));
  }
  if (top < 1 || top > moe::kMostTop) {
    refuse("top_k must be from 1 to " + std::to_string(moe::kMostTop) + ", got " +
           std::to_string(top));
  }
  for (const int64_t size :
       {tokens * top + 8 * experts, width, experts * 2 * inner, experts * width}) {
    if (size > INT32_MAX) {
      refuse("tokens times top_k and rows of all weights must be below 2^31, got " +
             std::to_string(size));
    }
  }
  if (factors) {
    const auto blocks = [](int64_t n) { return (n + moe::kFactorBlock - 1) / moe::kFactorBlock; };
    const auto check = [&](const Tensor& t, int64_t rows, int64_t columns, const char* name) {
      check_device(t, x, name);
      if (t.scalar_type() != ScalarType::Float) {
        refuse(std::string(name) + " must be Float, got " + name_of(t.scalar_type()));
      }
      check_shape(t, {experts, blocks(rows), blocks(columns)}, name);
    };
    check(factors->w1, 2 * inner, width, "w1_scale");
    check(factors->w2, width, inner, "w2_scale");
  }
  const int64_t sizes[] = {tokens, width};
  Given all{
      dtype,       {},         packed(x),  packed(weights),
      packed(ids), packed(w1), packed(w2), kernforge::new_contiguous(x, sizes, 2, x.scalar_type()),
      {}};
  all.of = {all.x.const_data_ptr(),
            all.w1.const_data_ptr(),
            all.w2.const_data_ptr(),
            all.weights.const_data_ptr(),
            static_cast<const int32_t*>(all.ids.const_data_ptr()),
            all.y.mutable_data_ptr(),
            tokens,
            width,
            inner,
            experts,
            top};
  if (factors) {
    all.factors = Factors{packed(factors->w1), packed(factors->w2)};
    all.of.w1_scale = static_cast<const float*>(all.factors->w1.const_data_ptr());
    all.of.w2_scale = static_cast<const float*>(all.factors->w2.const_data_ptr());
  }
  return all;
}

#if defined(CUDA_KERNEL)

Two route(const Tensor& logits, const std::optional<Tensor>& bias, int64_t top, bool sigmoid,
          bool normalize, double scale, int64_t groups, int64_t top_groups) {
  const Routed all = routed(logits, bias, top, sigmoid, normalize, scale, groups, top_groups);
  kernforge::on_device_of(logits, "moe", [&](cudaStream_t stream) {
    return moe::route_launch(all.dtype, all.of, stream);
  });
  return {all.weights, all.ids};
}

Tensor computed(const Tensor& x, const Given& all) {
  kernforge::on_device_of(x, "moe", [&](cudaStream_t stream) {
    const moe::Scratch scratch = moe::scratch_of(all.dtype, all.of);
    const int64_t bytes = scratch.tables + scratch.tokens + scratch.inner;
    const Tensor memory = kernforge::new_contiguous(x, &bytes, 1, ScalarType::Byte);
    auto* tables = static_cast<char*>(memory.mutable_data_ptr());
    auto* tokens = tables + scratch.tables;
    return moe::experts_launch(all.dtype, all.of, tables, tokens, tokens + scratch.tokens, stream);
  });
  return all.y;
}

void run(const moe::Sort& of, const Tensor& like) {
  kernforge::on_device_of(like, "moe", [&](cudaStream_t stream) {
    const int64_t bytes = moe::sort_scratch(of);
    const Tensor tables = kernforge::new_contiguous(like, &bytes, 1, ScalarType::Byte);
    return moe::sort_launch(of, tables.mutable_data_ptr(), stream);
  });
}

template <class Of>
void run(DType dtype, const Of& of, int64_t, const Tensor& like) {
  kernforge::on_device_of(like, "moe", [&](cudaStream_t stream) {
    if constexpr (std::is_same_v<Of, moe::Spread>) {
      return moe::spread_launch(dtype, of, stream);
    } else if constexpr (std::is_same_v<Of, moe::GateBackward>) {
      return moe::gate_backward_launch(dtype, of, stream);
    } else {
      return moe::sum_rows_launch(dtype, of, stream);
    }
  });
}

#else

constexpr int64_t kGrain = 64;  // tokens

Two route(const Tensor& logits, const std::optional<Tensor>& bias, int64_t top, bool sigmoid,
          bool normalize, double scale, int64_t groups, int64_t top_groups) {
  const Routed all = routed(logits, bias, top, sigmoid, normalize, scale, groups, top_groups);
  torch::stable::parallel_for(0, all.of.tokens, kGrain, [&](int64_t begin, int64_t end) {
    moe::route_cpu(all.dtype, all.of, begin, end);
  });
  return {all.weights, all.ids};
}

// Nothing below is recorded for a gradient: that is the Python function's part.
class NoGradient {
 public:
  NoGradient() : before_(aoti_torch_grad_mode_is_enabled()) {
    aoti_torch_grad_mode_set_enabled(false);
  }
  ~NoGradient() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGradient(const NoGradient&) = delete;
  NoGradient& operator=(const NoGradient&) = delete;

 private:
  bool before_;
};

// With factors the weights of the expert in the dtype of x, rounded once.
Tensor linear(const Tensor& x, const Tensor& weights, int64_t expert, DType dtype,
              const float* factors) {
  using torch::stable::detail::from;
  const std::optional<Tensor> no_bias;
  Tensor own = torch::stable::select(weights, 0, expert);
  if (factors != nullptr) {
    const int64_t rows = own.size(0), columns = own.size(1), sizes[] = {rows, columns};
    const auto blocks = [](int64_t n) { return (n + moe::kFactorBlock - 1) / moe::kFactorBlock; };
    const Tensor wide = kernforge::new_contiguous(x, sizes, 2, x.scalar_type());
    moe::widen_cpu(dtype, own.const_data_ptr(), factors + expert * blocks(rows) * blocks(columns),
                   wide.mutable_data_ptr(), rows, columns);
    own = wide;
  }
  std::array<StableIValue, 3> stack{from(x), from(own), from(no_bias)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::linear", "", stack.data(), TORCH_ABI_VERSION));
  return packed(torch::stable::detail::to<Tensor>(stack[0]));
}

Tensor computed(const Tensor& x, const Given& all) {
  const NoGradient guard;
  const moe::Experts& of = all.of;
  std::vector<std::vector<int64_t> > by_expert(of.experts);
  for (int64_t i = 0; i < of.tokens * of.top; ++i) {
    if (of.ids[i] >= 0 && of.ids[i] < of.experts) by_expert[of.ids[i]].push_back(i);
  }
  const auto matrix = [&](int64_t rows, int64_t columns) {
    const int64_t sizes[] = {rows, columns};
    return kernforge::new_contiguous(x, sizes, 2, x.scalar_type());
  };
  if (of.both != nullptr) {
    moe::sort_cpu({of.ids, of.positions, of.assignments, of.ends, of.tokens, of.experts, of.top});
  }
  const Tensor sorted = matrix(of.tokens * of.top, of.width);
  std::vector<int64_t> at(of.tokens * of.top, -1);
  const int64_t row_bytes = of.width * x.element_size();
  int64_t next = 0;
  for (int64_t e = 0; e < of.experts; ++e) {
    const auto& own = by_expert[e];
    const auto count = static_cast<int64_t>(own.size());
    if (count == 0) continue;
    const Tensor rows = matrix(count, of.width);
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(kernforge::mutable_element(rows, i * of.width),
                  kernforge::element(all.x, own[i] / of.top * of.width), row_bytes);
      at[own[i]] = next + i;
    }
    const Tensor both = linear(rows, all.w1, e, all.dtype, of.w1_scale),
                 inner = matrix(count, of.inner);
    if (of.both != nullptr) {  // rows of an expert lie side by side
      const int64_t bytes = 2 * of.inner * x.element_size();
      std::memcpy(static_cast<char*>(of.both) + of.positions[own[0]] * bytes, both.const_data_ptr(),
                  count * bytes);
    }
    torch::stable::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
      moe::gated_cpu(all.dtype, kernforge::element(both, begin * 2 * of.inner),
                     kernforge::mutable_element(inner, begin * of.inner), end - begin, of.inner);
    });
    const Tensor out = linear(inner, all.w2, e, all.dtype, of.w2_scale);
    std::memcpy(kernforge::mutable_element(sorted, next * of.width), out.const_data_ptr(),
                count * row_bytes);
    next += count;
  }
  torch::stable::parallel_for(0, of.tokens, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      moe::add_weighted_cpu(all.dtype, sorted.const_data_ptr(), at.data() + t * of.top,
                            kernforge::element(all.weights, t * of.top),
                            kernforge::mutable_element(all.y, t * of.width), of.top, of.width);
    }
  });
  return all.y;
}

void run(const moe::Sort& of, const Tensor&) { moe::sort_cpu(of); }

template <class Of>
void run(DType dtype, const Of& of, int64_t count, const Tensor&) {
  torch::stable::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<Of, moe::Spread>) {
      moe::spread_cpu(dtype, of, begin, end);
    } else if constexpr (std::is_same_v<Of, moe::GateBackward>) {
      moe::gate_backward_cpu(dtype, of, begin, end);
    } else {
      moe::sum_rows_cpu(dtype, of, begin, end);
    }
  });
}

#endif

Tensor experts(const Tensor& x, const Tensor& weights, const Tensor& ids, const Tensor& w1,
               const Tensor& w2, const std::optional<Tensor>& w1_scale,
               const std::optional<Tensor>& w2_scale) {
  if (w1_scale.has_value() != w2_scale.has_value()) {
    refuse(std::string("w1_scale and w2_scale belong together, ") +
           (w1_scale ? "w2_scale" : "w1_scale") + " is None");
  }
  const auto factors =
      w1_scale ? std::optional<Factors>(Factors{*w1_scale, *w2_scale}) : std::nullopt;
  return computed(x, given(x, weights, ids, w1, w2, factors));
}

// Both in one call, since each costs the host some microseconds.
Tensor routed_experts(const Tensor& x, const Tensor& logits, const Tensor& w1, const Tensor& w2,
                      int64_t top, bool sigmoid, bool normalize, const std::optional<Tensor>& bias,
                      double scale, int64_t groups, int64_t top_groups,
                      const std::optional<Tensor>& w1_scale,
                      const std::optional<Tensor>& w2_scale) {
  const auto [weights, ids] =
      route(logits, bias, top, sigmoid, normalize, scale, groups, top_groups);
  return experts(x, weights, ids, w1, w2, w1_scale, w2_scale);
}

// The parts that the gradient takes: gate and up by rows, and what `sort` gives.
Five experts_kept(const Tensor& x, const Tensor& weights, const Tensor& ids, const Tensor& w1,
                  const Tensor& w2) {
  Given all = given(x, weights, ids, w1, w2);
  moe::Experts& of = all.of;
  const int64_t rows = moe::rows_of(of.tokens * of.top, of.experts);
  const int64_t wide[] = {rows, 2 * of.inner}, sizes[] = {of.tokens, of.top};
  const Tensor both = kernforge::new_contiguous(x, wide, 2, x.scalar_type()),
               positions = new_ids(ids, sizes), assignments = new_numbers(ids, rows),
               ends = new_numbers(ids, of.experts);
  of.both = both.mutable_data_ptr();
  of.positions = ids_of(positions);
  of.assignments = ids_of(assignments);
  of.ends = ids_of(ends);
  return {computed(x, all), both, positions, assignments, ends};
}

// The parts of the gradient.

Three sort(const Tensor& ids, int64_t experts) {
  check_ids(ids, ids, 2, "ids");
  if (experts < 1 || experts > moe::kMostExperts) {
    refuse("the number of experts must be from 1 to " + std::to_string(moe::kMostExperts) +
           ", got " + std::to_string(experts));
  }
  const int64_t tokens = ids.size(0), top = ids.size(1), sizes[] = {tokens, top};
  const Tensor given = packed(ids), positions = new_ids(ids, sizes),
               assignments = new_numbers(ids, moe::rows_of(tokens * top, experts)),
               ends = new_numbers(ids, experts);
  run({ids_in(given), ids_of(positions), ids_of(assignments), ids_of(ends), tokens, experts, top},
      ids);
  return {positions, assignments, ends};
}

Two spread(const Tensor& x, const Tensor& grad, const Tensor& assignments, int64_t top) {
  const DType dtype = checked_dtype(x, "moe: x");
  check_like(grad, x, x.scalar_type(), "grad");
  check_ids(assignments, x, 1, "assignments");
  if (x.dim() != 2) refuse("x must be [tokens, width], got " + shape_of(x));
  check_shape(grad, {x.size(0), x.size(1)}, "grad");
  const int64_t sizes[] = {assignments.size(0), x.size(1)};
  const Tensor from = packed(x), from_grad = packed(grad), of_row = packed(assignments),
               to = kernforge::new_contiguous(x, sizes, 2, x.scalar_type()),
               to_grad = kernforge::new_contiguous(x, sizes, 2, x.scalar_type());
  const moe::Spread of{from.const_data_ptr(),
                       from_grad.const_data_ptr(),
                       ids_in(of_row),
                       to.mutable_data_ptr(),
                       to_grad.mutable_data_ptr(),
                       sizes[0],
                       sizes[1],
                       top};
  run(dtype, of, of.rows, x);
  return {to, to_grad};
}

Three gate_backward(const Tensor& both, const Tensor& plain, const Tensor& weights,
                    const Tensor& assignments) {
  const DType dtype = checked_dtype(both, "moe: both");
  check_like(plain, both, both.scalar_type(), "plain");
  check_like(weights, both, weights_of(dtype), "weights");
  check_ids(assignments, both, 1, "assignments");
  if (plain.dim() != 2) refuse("plain must be [rows, inner], got " + shape_of(plain));
  const int64_t rows = assignments.size(0), inner = plain.size(1);
  check_shape(plain, {rows, inner}, "plain");
  check_shape(both, {rows, 2 * inner}, "both");
  const int64_t wide[] = {rows, 2 * inner}, sizes[] = {rows, inner};
  const Tensor from = packed(both), from_plain = packed(plain), by = packed(weights),
               of_row = packed(assignments),
               dboth = kernforge::new_contiguous(both, wide, 2, both.scalar_type()),
               weighted = kernforge::new_contiguous(both, sizes, 2, both.scalar_type()),
               dweights = kernforge::new_contiguous(both, &rows, 1, weights_of(dtype));
  const moe::GateBackward of{from.const_data_ptr(),
                             from_plain.const_data_ptr(),
                             by.const_data_ptr(),
                             ids_in(of_row),
                             dboth.mutable_data_ptr(),
                             weighted.mutable_data_ptr(),
                             dweights.mutable_data_ptr(),
                             rows,
                             inner};
  run(dtype, of, rows, both);
  return {dboth, weighted, dweights};
}

Two sum_rows(const Tensor& rows, const Tensor& dweights, const Tensor& positions) {
  const DType dtype = checked_dtype(rows, "moe: rows");
  check_like(dweights, rows, weights_of(dtype), "dweights");
  check_ids(positions, rows, 2, "positions");
  if (rows.dim() != 2) refuse("rows must be [rows, width], got " + shape_of(rows));
  check_shape(dweights, {rows.size(0)}, "dweights");
  const int64_t tokens = positions.size(0), top = positions.size(1), width = rows.size(1);
  const int64_t sizes[] = {tokens, width}, of_tokens[] = {tokens, top};
  const Tensor from = packed(rows), from_dweights = packed(dweights), at = packed(positions),
               y = kernforge::new_contiguous(rows, sizes, 2, rows.scalar_type()),
               sorted = kernforge::new_contiguous(rows, of_tokens, 2, weights_of(dtype));
  const moe::SumRows of{from.const_data_ptr(),
                        from_dweights.const_data_ptr(),
                        ids_in(at),
                        y.mutable_data_ptr(),
                        sorted.mutable_data_ptr(),
                        tokens,
                        width,
                        top};
  run(dtype, of, tokens, rows);
  return {y, sorted};
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def(
      "route(Tensor logits, Tensor? bias, int top_k, bool sigmoid, bool normalize, float scale,"
      " int groups, int top_groups) -> (Tensor, Tensor)");
  ops.def(
      "experts(Tensor x, Tensor weights, Tensor ids, Tensor w1, Tensor w2, Tensor? w1_scale,"
      " Tensor? w2_scale) -> Tensor");
  ops.def(
      "routed_experts(Tensor x, Tensor logits, Tensor w1, Tensor w2, int top_k, bool sigmoid,"
      " bool normalize, Tensor? bias, float scale, int groups, int top_groups, Tensor? w1_scale,"
      " Tensor? w2_scale) -> Tensor");
  ops.def(
      "experts_kept(Tensor x, Tensor weights, Tensor ids, Tensor w1, Tensor w2)"
      " -> (Tensor, Tensor, Tensor, Tensor, Tensor)");
  ops.def("sort(Tensor ids, int experts) -> (Tensor, Tensor, Tensor)");
  ops.def("spread(Tensor x, Tensor grad, Tensor assignments, int top_k) -> (Tensor, Tensor)");
  ops.def(
      "gate_backward(Tensor both, Tensor plain, Tensor weights, Tensor assignments)"
      " -> (Tensor, Tensor, Tensor)");
  ops.def("sum_rows(Tensor rows, Tensor dweights, Tensor positions) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("route", TORCH_BOX(&route));
  ops.impl("experts", TORCH_BOX(&experts));
  ops.impl("experts_kept", TORCH_BOX(&experts_kept));
  ops.impl("routed_experts", TORCH_BOX(&routed_experts));
  ops.impl("sort", TORCH_BOX(&sort));
  ops.impl("spread", TORCH_BOX(&spread));
  ops.impl("gate_backward", TORCH_BOX(&gate_backward));
  ops.impl("sum_rows", TORCH_BOX(&sum_rows));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
