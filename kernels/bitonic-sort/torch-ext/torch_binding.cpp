// SPDX-License-Identifier: Apache-2.0
//
// The ops as torch sees them: checks, layout, allocation, stream, registration. On torch's stable
// ABI, so one build serves every torch from 2.10 on. All sorting is behind bitonic_sort.h.

#include <tuple>

#include "../bitonic_sort.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using bitonic_sort::Kind;
using bitonic_sort::Order;
using bitonic_sort::Rows;
using kernforge::ScalarType;
using kernforge::Tensor;

using Two = std::tuple<Tensor, Tensor>;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("bitonic_sort: " + why); }

Order order_of(const Tensor& x, bool descending) {
  switch (x.scalar_type()) {
    case ScalarType::Float:
      return {Kind::kFloat, 32, 23, descending};
    case ScalarType::Half:
      return {Kind::kFloat, 16, 10, descending};
    case ScalarType::BFloat16:
      return {Kind::kFloat, 16, 7, descending};
    case ScalarType::Double:
      return {Kind::kFloat, 64, 52, descending};
    case ScalarType::Char:
      return {Kind::kSigned, 8, 0, descending};
    case ScalarType::Short:
      return {Kind::kSigned, 16, 0, descending};
    case ScalarType::Int:
      return {Kind::kSigned, 32, 0, descending};
    case ScalarType::Long:
      return {Kind::kSigned, 64, 0, descending};
    case ScalarType::Bool:
    case ScalarType::Byte:
      return {Kind::kUnsigned, 8, 0, descending};
    case ScalarType::UInt16:
      return {Kind::kUnsigned, 16, 0, descending};
    case ScalarType::UInt32:
      return {Kind::kUnsigned, 32, 0, descending};
    case ScalarType::UInt64:
      return {Kind::kUnsigned, 64, 0, descending};
    default:
      refuse("x must be of a float type, an integer type or bool, got " +
             kernforge::name_of(x.scalar_type()));
  }
}

struct Results {
  Tensor values, indices;
};

// Of the dtype `like` has and of int64, contiguous.
Results results_of(const Tensor& like, const int64_t* sizes, int64_t dims) {
  int64_t strides[64], stride = 1;
  for (int64_t i = dims - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &dtype));
  return {kernforge::new_strided(like, sizes, strides, dims, dtype),
          kernforge::new_strided(like, sizes, strides, dims, aoti_torch_dtype_int64())};
}

Rows rows_of(const Tensor& x, int64_t keep, const Results& to) {
  const int64_t length = x.size(x.dim() - 1);
  return {x.const_data_ptr(),
          to.values.mutable_data_ptr(),
          static_cast<int64_t*>(to.indices.mutable_data_ptr()),
          nullptr,
          length == 0 ? 0 : x.numel() / length,
          length,
          keep};
}

void check(const Tensor& x, int64_t keep) {
  if (x.dim() < 1) refuse("x must have a dimension to sort, got a scalar");
  const int64_t length = x.size(x.dim() - 1);
  if (length > UINT32_MAX) {
    refuse("the sorted dimension must be below 2^32, got " + std::to_string(length));
  }
  if (keep < 0 || keep > length) {
    refuse("k must be from 0 to the size of the dimension, " + std::to_string(length) + ", got " +
           std::to_string(keep));
  }
}

#if defined(CUDA_KERNEL)

Tensor bytes_on(const Tensor& like, int64_t bytes) {
  return kernforge::new_contiguous(like, &bytes, 1, ScalarType::Byte);
}

void sort_rows(const Tensor& x, const Order& order, const Rows& of, int64_t chunks) {
  const Tensor scratch = bytes_on(x, bitonic_sort::scratch_for(order, of, chunks));
  kernforge::on_device_of(x, "bitonic_sort", [&](cudaStream_t stream) {
    return bitonic_sort::rows_launch(order, of, chunks, scratch.mutable_data_ptr(), stream);
  });
}

void sort_long(const Tensor& x, const Order& order, const Rows& of) {
  const Tensor scratch = bytes_on(x, bitonic_sort::radix_scratch(order, of));
  kernforge::on_device_of(x, "bitonic_sort", [&](cudaStream_t stream) {
    return bitonic_sort::radix_launch(order, of, scratch.mutable_data_ptr(), stream);
  });
}

// The first of long rows: of parts of each row, then of these, until they are one block's.
constexpr int64_t kPart = 4096;
constexpr int64_t kMostKept = kPart / 8;

void sort_parts(const Tensor& x, const Order& order, const Rows& last) {
  Rows of = last;
  Results parts;
  while (of.length > bitonic_sort::kLongest) {
    const int64_t chunks = (of.length + kPart - 1) / kPart;
    const int64_t sizes[] = {of.rows, chunks * of.keep};
    const Results to = results_of(x, sizes, 2);
    of.values = to.values.mutable_data_ptr();
    of.indices = static_cast<int64_t*>(to.indices.mutable_data_ptr());
    sort_rows(x, order, of, chunks);
    parts = to;  // what was read before is free now, and not used again before this stream is there
    of.x = of.values;
    of.source = of.indices;
    of.length = chunks * of.keep;
  }
  of.values = last.values;
  of.indices = last.indices;
  sort_rows(x, order, of, 1);
}

Two sort(const Tensor& x, int64_t keep, bool descending) {
  const Order order = order_of(x, descending);
  check(x, keep);
  const int64_t last = x.dim() - 1, length = x.size(last);
  const bool all = keep == length || (length > bitonic_sort::kLongest && keep > kMostKept);
  const Tensor in = x.is_contiguous() ? x : torch::stable::contiguous(x);
  int64_t sizes[64];
  std::copy(x.sizes().begin(), x.sizes().end(), sizes);
  if (!all) sizes[last] = keep;
  const Results to = results_of(x, sizes, x.dim());
  if (x.numel() > 0 && keep > 0) {
    const Rows of = rows_of(in, all ? length : keep, to);
    if (length <= bitonic_sort::kLongest) {
      sort_rows(in, order, of, 1);
    } else if (all) {
      sort_long(in, order, of);
    } else {
      sort_parts(in, order, of);
    }
  }
  if (sizes[last] == keep) return {to.values, to.indices};
  Tensor values = to.values, indices = to.indices;
  return {torch::stable::contiguous(torch::stable::narrow(values, last, 0, keep)),
          torch::stable::contiguous(torch::stable::narrow(indices, last, 0, keep))};
}

#else

Two sort(const Tensor& x, int64_t keep, bool descending) {
  const Order order = order_of(x, descending);
  check(x, keep);
  const int64_t last = x.dim() - 1;
  const Tensor in = x.is_contiguous() ? x : torch::stable::contiguous(x);
  int64_t sizes[64];
  std::copy(x.sizes().begin(), x.sizes().end(), sizes);
  sizes[last] = keep;
  const Results to = results_of(x, sizes, x.dim());
  if (x.numel() > 0 && keep > 0) {
    constexpr int64_t kGrain = 1 << 12;  // elements: some 20 us of one core, over a thread's start
    const Rows of = rows_of(in, keep, to);
    torch::stable::parallel_for(
        0, of.rows, std::max<int64_t>(kGrain / of.length, 1),
        [&](int64_t begin, int64_t end) { bitonic_sort::sort_cpu(order, of, begin, end); });
  }
  return {to.values, to.indices};
}

#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("sort(Tensor x, int keep, bool descending) -> (Tensor values, Tensor indices)");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("sort", TORCH_BOX(&sort));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
