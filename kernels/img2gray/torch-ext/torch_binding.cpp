// SPDX-License-Identifier: Apache-2.0
//
// The op as torch sees it: checks, allocation, stream, registration. On torch's stable ABI, so one
// build serves every torch from 2.10 on. All arithmetic is behind img2gray.h.

#include "../img2gray.h"
#include "kernforge/stable_binding.h"
#include "registration.h"

namespace {

using img2gray::Layout;
using img2gray::Weights;
using kernforge::device_of;
using kernforge::name_of;
using kernforge::ScalarType;
using kernforge::shape_of;
using kernforge::Tensor;

[[noreturn]] void refuse(const std::string& why) { kernforge::value_error("img2gray: " + why); }

// image: uint8 [H, W, 3] or [N, H, W, 3], any strides.
void check_image(const Tensor& image, int64_t weights) {
  if (image.scalar_type() != ScalarType::Byte) {
    refuse("image must be uint8, got " + name_of(image.scalar_type()));
  }
  if (image.dim() != 3 && image.dim() != 4) {
    refuse("image must be [H, W, 3] or [N, H, W, 3], got " + shape_of(image));
  }
  if (image.size(image.dim() - 1) != 3) {
    refuse("the last dimension of image must be 3 (red, green, blue), got " + shape_of(image));
  }
  if (weights < 0 || weights > 3) {
    refuse("weights must be 0 (default), 1 (bt601), or these truncated, 2 or 3, got " +
           std::to_string(weights));
  }
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
  if (out.scalar_type() != ScalarType::Byte) {
    refuse("out must be uint8, got " + name_of(out.scalar_type()));
  }
  bool same = out.dim() == image.dim() - 1;
  for (int64_t i = 0; same && i < out.dim(); ++i) same = out.size(i) == image.size(i);
  if (!same) {
    refuse("out must have the shape of image without its last dimension, got " + shape_of(out) +
           " for image " + shape_of(image));
  }
  if (out.device() != image.device()) {
    refuse("out must be on " + device_of(image) + " like image, got " + device_of(out));
  }
  if (out.numel() == 0) return;
  int64_t packed = 1;  // the least stride that the next dimension may have
  for (int64_t i = out.dim() - 1; i >= 0; --i) {
    if (out.size(i) == 1) continue;
    const bool last = i == out.dim() - 1;
    if (last ? out.stride(i) != 1 : out.stride(i) < packed) {
      refuse("out must have packed rows that do not overlap, got stride " +
             std::to_string(out.stride(i)) + " in dimension " + std::to_string(i));
    }
    packed += (out.size(i) - 1) * out.stride(i);
  }
  const Span a = span_of(image), b = span_of(out);
  if (a.first <= b.last && b.first <= a.last) refuse("out must not share memory with image");
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

Tensor new_gray(const Tensor& image) {
  return kernforge::new_contiguous(image, image.sizes().data(), image.dim() - 1, ScalarType::Byte);
}

// Of checked tensors on the device that this build is for.
void run(const Tensor& image, int64_t weights, const Tensor& out) {
  const Layout layout = layout_of(image, out);
  if (layout.pixels() == 0) return;
  const auto* from = static_cast<const uint8_t*>(image.const_data_ptr());
  auto* to = static_cast<uint8_t*>(out.mutable_data_ptr());
  const auto with = static_cast<Weights>(weights);
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(image, "img2gray", [&](cudaStream_t stream) {
    return img2gray::gray_launch(from, to, layout, with, stream);
  });
#else
  constexpr int64_t kGrain = 1 << 16;  // pixels: some 10 us of one core, over a thread's start
  torch::stable::parallel_for(0, layout.pixels(), kGrain, [&](int64_t begin, int64_t end) {
    img2gray::gray_cpu(from, to, layout, with, begin, end);
  });
#endif
}

Tensor gray(const Tensor& image, int64_t weights) {
  check_image(image, weights);
  Tensor out = new_gray(image);
  run(image, weights, out);
  return out;
}

void gray_out(const Tensor& image, int64_t weights, const Tensor& out) {
  check_image(image, weights);
  check_out(image, out);
  run(image, weights, out);
}

}  // namespace

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("img2gray(Tensor image, int weights) -> Tensor");
  ops.def("img2gray_out(Tensor image, int weights, *, Tensor(a!) out) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("img2gray", TORCH_BOX(&gray));
  ops.impl("img2gray_out", TORCH_BOX(&gray_out));
}

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
