// SPDX-License-Identifier: Apache-2.0
//
// RGB to gray: what the launchers, the CPU path and the binding share. No torch header in here.
//
//   gray = floor((wr*R + wg*G + wb*B + half) / (2*half)), with 2*half = wr + wg + wb
//
// so 0.21/0.72/0.07 and 0.299/0.587/0.114 are exact fractions and halves round up. What is
// truncated is computed in float32 instead, as tutorials write it:
//
//   gray = (uint8_t)(0.21f * R + 0.72f * G + 0.07f * B)

#pragma once

#include <cstdint>
#include <type_traits>

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
#endif

namespace img2gray {

// Which weights; the numbers are what the op takes.
enum class Weights : int64_t { kDefault = 0, kBt601 = 1, kTruncated = 2, kTruncatedBt601 = 3 };

// The division is a multiplication: x / kDivisor = (x * reciprocal) >> shift. The sum is shifted
// right by kPreShift first, so that it fits 15 bits for both sets: floor(floor(s/8)/125) is
// floor(s/1000).
struct DefaultWeights {
  static constexpr uint32_t kRed = 21, kGreen = 72, kBlue = 7, kHalf = 50;
  static constexpr int kPreShift = 0;
};
struct Bt601Weights {
  static constexpr uint32_t kRed = 299, kGreen = 587, kBlue = 114, kHalf = 500;
  static constexpr int kPreShift = 3;
};

// Every product and every sum is rounded to float32, and none are fused: C++ compilers for x86-64
// and NumPy give these bytes. nvcc fuses unless it is told not to, and 4,180 of the 2^24 colours
// differ.
struct TruncatedWeights {
  static constexpr float kRed = 0.21f, kGreen = 0.72f, kBlue = 0.07f;
};
struct TruncatedBt601Weights {
  static constexpr float kRed = 0.299f, kGreen = 0.587f, kBlue = 0.114f;
};
template <class W>
constexpr bool kTruncates = std::is_same_v<decltype(W::kRed), const float>;

// Calls `done` with a value of the weights' type.
template <class Done>
auto with_weights(Weights weights, Done done) {
  switch (weights) {
    case Weights::kBt601:
      return done(Bt601Weights{});
    case Weights::kTruncated:
      return done(TruncatedWeights{});
    case Weights::kTruncatedBt601:
      return done(TruncatedBt601Weights{});
    default:
      return done(DefaultWeights{});
  }
}

// For 0 <= e = value*d - 2^shift and e*x < 2^shift, (x*value) >> shift is floor(x/d): the product
// is x/d + x*e/(d*2^shift), and the second term is below 1/d (Granlund and Montgomery, PLDI 1994).
template <class W, int kShift>
struct Reciprocal {
  static constexpr uint64_t kOne = uint64_t{1} << kShift;
  static constexpr uint64_t kDivisor = (2 * W::kHalf) >> W::kPreShift;
  static constexpr uint64_t kMaxSum =
      (255 * (W::kRed + W::kGreen + W::kBlue) + W::kHalf) >> W::kPreShift;
  static constexpr uint32_t value = static_cast<uint32_t>((kOne + kDivisor - 1) / kDivisor);

  static_assert(kDivisor << W::kPreShift == W::kRed + W::kGreen + W::kBlue,
                "the shifted divisor is the sum of the weights");
  static_assert((value * kDivisor - kOne) * kMaxSum < kOne,
                "the reciprocal is exact for every sum");
  static_assert(kMaxSum * value < uint64_t{1} << 32, "the product fits 32 bits");
};

// Where pixels lie. Strides are in bytes; the gray pixels of one row lie side by side.
struct Layout {
  int64_t batch, height, width;
  int64_t in_batch, in_row, in_pixel, in_channel;
  int64_t out_batch, out_row;

  bool packed() const { return in_pixel == 3 && in_channel == 1; }
  int64_t pixels() const { return batch * height * width; }
  // Bytes from the first one to the end of the last one, for packed pixels.
  int64_t in_extent() const { return (batch - 1) * in_batch + (height - 1) * in_row + width * 3; }
};

// The same pixels in fewer, longer rows: a contiguous batch becomes one row. Strides of
// dimensions of size one mean nothing, so they never stand in the way.
inline Layout collapse(Layout a) {
  if (a.width == 1 && a.in_channel == 1) a.in_pixel = 3;
  if (a.batch == 1 || (a.height == 1) ||
      (a.in_batch == a.height * a.in_row && a.out_batch == a.height * a.out_row)) {
    if (a.height == 1) a.in_row = a.in_batch, a.out_row = a.out_batch;
    a.height *= a.batch;
    a.batch = 1;
  }
  if (a.height == 1 || (a.in_row == a.width * a.in_pixel && a.out_row == a.width)) {
    a.width *= a.height;
    a.height = 1;
  }
  return a;
}

// Pixels [begin, end), counted row by row, of uint8 pictures. Any layout; out must not overlap in.
// Threads may share one picture by disjoint ranges.
void gray_cpu(const uint8_t* in, uint8_t* out, const Layout& layout, Weights weights, int64_t begin,
              int64_t end);

#if defined(CUDA_KERNEL) || defined(__CUDACC__)
// All pixels, on the current device, asynchronously on the stream. Nothing is launched for none.
cudaError_t gray_launch(const uint8_t* in, uint8_t* out, const Layout& layout, Weights weights,
                        cudaStream_t stream);
#endif

}  // namespace img2gray
