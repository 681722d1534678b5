// SPDX-License-Identifier: Apache-2.0
//
// The op as torch sees it: checks, allocation, stream, registration. On torch's stable ABI, so one
// build serves every torch from 2.10 on. All arithmetic is behind img2gray.h.

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "../img2gray.h"
#include "registration.h"

namespace {

using img2gray::Layout;
using img2gray::Weights;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Becomes a ValueError in Python.
[[noreturn]] void refuse(const std::string& why) {
  throw std::invalid_argument("img2gray: " + why);
}

void require(bool good, const std::string& why) {
  if (!good) refuse(why);
}

std::string shape_of(const Tensor& t) {
  std::string text = "[";
  for (int64_t i = 0; i < t.dim(); ++i) text += (i ? ", " : "") + std::to_string(t.size(i));
  return text + "]";
}

std::string device_of(const Tensor& t) {
  if (t.is_cpu()) return "cpu";
  if (t.is_cuda()) return "cuda:" + std::to_string(t.get_device_index());
  return "device type " + std::to_string(static_cast<int>(t.device().type()));
}

std::string dtype_of(const Tensor& t) { return torch::headeronly::toString(t.scalar_type()); }

// image: uint8 [H, W, 3] or [N, H, W, 3], any strides.
void check_image(const Tensor& image, int64_t weights) {
  require(image.scalar_type() == ScalarType::Byte, "image must be uint8, got " + dtype_of(image));
  require(image.dim() == 3 || image.dim() == 4,
          "image must be [H, W, 3] or [N, H, W, 3], got " + shape_of(image));
  require(image.size(image.dim() - 1) == 3,
          "the last dimension of image must be 3 (red, green, blue), got " + shape_of(image));
  require(weights == 0 || weights == 1,
          "weights must be 0 (default) or 1 (bt601), got " + std::to_string(weights));
}

// The bytes [first, last] that a uint8 tensor with elements spans.
struct Span {
  const uint8_t* first;
  const uint8_t* last;
};

Span span_of(const Tensor& t) {
  const auto* first = static_cast<const uint8_t*>(t.const_data_ptr());
  int64_t last = 0;
  for (int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
  return {first, first + last};
}

// out: uint8 of the image's shape without channels, same device, rows packed and disjoint.
void check_out(const Tensor& image, const Tensor& out) {
  require(out.scalar_type() == ScalarType::Byte, "out must be uint8, got " + dtype_of(out));
  bool same = out.dim() == image.dim() - 1;
  for (int64_t i = 0; same && i < out.dim(); ++i) same = out.size(i) == image.size(i);
  require(same, "out must have the shape of image without its last dimension, got " +
                    shape_of(out) + " for image " + shape_of(image));
  require(device_of(out) == device_of(image),
          "out must be on " + device_of(image) + " like image, got " + device_of(out));
  if (out.numel() == 0) return;
  int64_t packed = 1;  // the least stride that the next dimension may have
  for (int64_t i = out.dim() - 1; i >= 0; --i) {
    if (out.size(i) == 1) continue;
    const bool last = i == out.dim() - 1;
    require(last ? out.stride(i) == 1 : out.stride(i) >= packed,
            "out must have packed rows that do not overlap, got stride " +
                std::to_string(out.stride(i)) + " in dimension " + std::to_string(i));
    packed += (out.size(i) - 1) * out.stride(i);
  }
  const Span a = span_of(image), b = span_of(out);
  require(b.last < a.first || a.last < b.first, "out must not share memory with image");
}

// Sizes and strides as the kernels take them; a single picture is a batch of one.
Layout layout_of(const Tensor& image, const Tensor& out) {
  const int64_t d = image.dim();
  const bool batched = d == 4;
  Layout layout;
  layout.batch = batched ? image.size(0) : 1;
  layout.height = image.size(d - 3);
  layout.width = image.size(d - 2);
  layout.in_batch = batched ? image.stride(0) : 0;
  layout.in_row = image.stride(d - 3);
  layout.in_pixel = image.stride(d - 2);
  layout.in_channel = image.stride(d - 1);
  layout.out_batch = batched ? out.stride(0) : 0;
  layout.out_row = out.stride(d - 3);
  return layout;
}

// By the C interface: going through the dispatcher for new_empty costs 1 us more a call.
Tensor empty_out(const Tensor& image) {
  const int64_t d = image.dim() - 1;
  std::array<int64_t, 3> sizes, strides;
  int64_t stride = 1;
  for (int64_t i = d - 1; i >= 0; --i) {
    sizes[i] = image.size(i);
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  int32_t device = 0;
  AtenTensorHandle out = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(image.get(), &device));
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(d, sizes.data(), strides.data(),
                                                  aoti_torch_dtype_uint8(), device,
                                                  image.get_device_index(), &out));
  return Tensor(out);
}

#if defined(CPU_KERNEL)

constexpr int64_t kGrain = 1 << 16;  // pixels: some 10 us of one core, well over a thread's start

void run_cpu(const Tensor& image, int64_t weights, const Tensor& out) {
  require(image.is_cpu(), "image must be on cpu like out, got " + device_of(image));
  const Layout layout = layout_of(image, out);
  if (layout.pixels() == 0) return;
  const auto* from = static_cast<const uint8_t*>(image.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  torch::stable::parallel_for(0, layout.pixels(), kGrain, [&](int64_t begin, int64_t end) {
    img2gray::gray_cpu(from, to, layout, static_cast<Weights>(weights), begin, end);
  });
}

Tensor img2gray_cpu(const Tensor& image, int64_t weights) {
  check_image(image, weights);
  Tensor out = empty_out(image);
  run_cpu(image, weights, out);
  return out;
}

void img2gray_out_cpu(const Tensor& image, int64_t weights, const Tensor& out) {
  check_image(image, weights);
  check_out(image, out);
  run_cpu(image, weights, out);
}

#endif

#if defined(CUDA_KERNEL)

void run_cuda(const Tensor& image, int64_t weights, const Tensor& out) {
  require(image.is_cuda(),
          "image must be on " + device_of(out) + " like out, got " + device_of(image));
  const Layout layout = layout_of(image, out);
  if (layout.pixels() == 0) return;
  const int32_t device = image.get_device_index();
  const torch::stable::accelerator::DeviceGuard guard(device);
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  const cudaError_t error =
      img2gray::gray_launch(static_cast<const uint8_t*>(image.const_data_ptr()),
                            static_cast<uint8_t*>(out.mutable_data_ptr()), layout,
                            static_cast<Weights>(weights), static_cast<cudaStream_t>(stream));
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("img2gray: CUDA error on ") + device_of(image) + ": " +
                             cudaGetErrorString(error));
  }
}

Tensor img2gray_cuda(const Tensor& image, int64_t weights) {
  check_image(image, weights);
  Tensor out = empty_out(image);
  run_cuda(image, weights, out);
  return out;
}

void img2gray_out_cuda(const Tensor& image, int64_t weights, const Tensor& out) {
  check_image(image, weights);
  check_out(image, out);
  run_cuda(image, weights, out);
}

#endif

// A build holds one backend; the other device gets a sentence instead of the dispatcher's table.
#if !defined(CPU_KERNEL) || !defined(CUDA_KERNEL)

#if defined(CUDA_KERNEL)
constexpr const char* kBuiltFor = "cuda";
#else
constexpr const char* kBuiltFor = "cpu";
#endif

Tensor img2gray_elsewhere(const Tensor& image, int64_t) {
  refuse("image is on " + device_of(image) + ", this build runs on " + kBuiltFor);
}

void img2gray_out_elsewhere(const Tensor& image, int64_t, const Tensor& out) {
  refuse("image is on " + device_of(image) + " and out on " + device_of(out) +
         ", this build runs on " + kBuiltFor);
}

#endif

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor image, int weights) -> Tensor");
  ops.def("img2gray_out(Tensor image, int weights, *, Tensor(a!) out) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
#if defined(CPU_KERNEL)
  ops.impl("img2gray", TORCH_BOX(&img2gray_cpu));
  ops.impl("img2gray_out", TORCH_BOX(&img2gray_out_cpu));
#else
  ops.impl("img2gray", TORCH_BOX(&img2gray_elsewhere));
  ops.impl("img2gray_out", TORCH_BOX(&img2gray_out_elsewhere));
#endif
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
#if defined(CUDA_KERNEL)
  ops.impl("img2gray", TORCH_BOX(&img2gray_cuda));
  ops.impl("img2gray_out", TORCH_BOX(&img2gray_out_cuda));
#else
  ops.impl("img2gray", TORCH_BOX(&img2gray_elsewhere));
  ops.impl("img2gray_out", TORCH_BOX(&img2gray_out_elsewhere));
#endif
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
