// SPDX-License-Identifier: Apache-2.0
//
// RGB to gray on NVIDIA GPUs: uint8 [N, H, W, 3] to uint8 [N, H, W], weights as in img2gray.h.
//
// Bound by memory: 3 bytes in and 1 byte out a pixel. A thread takes 16 pixels: three 16-byte
// loads, one 16-byte store. The three loads of a warp touch the same sectors one after the other
// and meet in L1, which turned out to be the best transposition. Tried on an H200 (README.md has
// figures): coalesced loads staged through shared memory, 5 to 8 % slower; the bulk copy engine,
// equal with one tile a block and 2 % slower with a persistent grid; loads that pass L1 by, 13 %
// slower; loops over rows in the kernel, 48 registers instead of 30 and 2 % slower. What is left
// needs nothing of one architecture, so it is the same from sm_75 on.

#include <algorithm>

#include "img2gray.h"

namespace img2gray {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 16;  // pixels a thread; 16 gray bytes are one store

// The weights as bytes of a word, red lowest: low and high byte of each.
template <class W>
struct WeightBytes {
  static constexpr uint64_t kLow =
      (W::kRed & 255) | (W::kGreen & 255) << 8 | (W::kBlue & 255) << 16;
  static constexpr uint64_t kHigh = (W::kRed >> 8) | (W::kGreen >> 8) << 8 | (W::kBlue >> 8) << 16;
};

// The exact weighted mean of the pixel whose red is byte kByte of word a and which may go on in
// word b; the value is the result's top byte.
template <class W, int kByte>
__device__ __forceinline__ uint32_t gray_top_exact(uint32_t a, uint32_t b) {
  constexpr uint64_t low = WeightBytes<W>::kLow << (8 * kByte);
  constexpr uint64_t high = WeightBytes<W>::kHigh << (8 * kByte);
  uint32_t sum = __dp4a(a, static_cast<uint32_t>(low), W::kHalf);
  if constexpr ((low >> 32) != 0) sum = __dp4a(b, static_cast<uint32_t>(low >> 32), sum);
  if constexpr (high != 0) {
    uint32_t upper = __dp4a(a, static_cast<uint32_t>(high), 0u);
    if constexpr ((high >> 32) != 0) upper = __dp4a(b, static_cast<uint32_t>(high >> 32), upper);
    sum += upper << 8;
  }
  return (sum >> W::kPreShift) * Reciprocal<W, 24>::value;
}

// Likewise, exact or truncated.
template <class W, int kByte>
__device__ __forceinline__ uint32_t gray_top(uint32_t a, uint32_t b) {
  if constexpr (kTruncates<W>) {
    const auto byte = [a, b](int at) {
      return static_cast<float>((at < 4 ? a >> (8 * at) : b >> (8 * (at - 4))) & 255);
    };
    const float red_green =
        __fadd_rn(__fmul_rn(W::kRed, byte(kByte)), __fmul_rn(W::kGreen, byte(kByte + 1)));
    return __float2uint_rz(__fadd_rn(red_green, __fmul_rn(W::kBlue, byte(kByte + 2)))) << 24;
  } else {
    return gray_top_exact<W, kByte>(a, b);
  }
}

// Four pixels in three words -> four gray bytes.
template <class W>
__device__ __forceinline__ uint32_t gray4(uint32_t a, uint32_t b, uint32_t c) {
  const uint32_t first = __byte_perm(gray_top<W, 0>(a, b), gray_top<W, 3>(a, b), 0x0073);
  const uint32_t last = __byte_perm(gray_top<W, 2>(b, c), gray_top<W, 1>(c, c), 0x0073);
  return __byte_perm(first, last, 0x5410);
}

// Gray of one pixel anywhere.
template <class W>
__device__ __forceinline__ uint8_t gray_pixel(const uint8_t* p, int64_t channel) {
  const uint32_t rgb = uint32_t{__ldg(p)} | uint32_t{__ldg(p + channel)} << 8 |
                       uint32_t{__ldg(p + 2 * channel)} << 16;
  return static_cast<uint8_t>(gray_top<W, 0>(rgb, 0) >> 24);
}

// 48 bytes as 12 words, from `skew` bytes behind the start of an aligned block of 16. Reads three
// blocks, or four with a skew.
__device__ __forceinline__ void load_group(const uint4* blocks, uint32_t skew,
                                           uint32_t (&words)[12]) {
  uint32_t w[16];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint4 v = i < 3 || skew != 0 ? __ldg(blocks + i) : make_uint4(0, 0, 0, 0);
    w[4 * i] = v.x, w[4 * i + 1] = v.y, w[4 * i + 2] = v.z, w[4 * i + 3] = v.w;
  }
  // A barrel shifter: indices stay known at compile time, so that w stays in registers.
  if (skew & 4) {
#pragma unroll
    for (int i = 0; i < 15; ++i) w[i] = w[i + 1];
  }
  if (skew & 8) {
#pragma unroll
    for (int i = 0; i < 14; ++i) w[i] = w[i + 2];
  }
#pragma unroll
  for (int i = 0; i < 12; ++i) words[i] = __funnelshift_r(w[i], w[i + 1], 8 * (skew & 3));
}

// The 16 pixels from x on of a row of `width`; out_row + x is aligned. The fast way needs a whole
// group and, with a skew, up to 15 bytes around it, which must lie inside [begin, end).
template <class W>
__device__ __forceinline__ void gray_group(const uint8_t* in_row, uint8_t* out_row, int64_t x,
                                           int64_t width, const uint8_t* begin,
                                           const uint8_t* end) {
  const uint8_t* from = in_row + 3 * x;
  const uint32_t skew = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15);
  const uint8_t* first = from - skew;
  const bool whole = x >= 0 && x + kGroup <= width;
  if (whole && first >= begin && first + (skew == 0 ? 48 : 64) <= end) {
    uint32_t w[12];
    load_group(reinterpret_cast<const uint4*>(first), skew, w);
    *reinterpret_cast<uint4*>(out_row + x) =
        make_uint4(gray4<W>(w[0], w[1], w[2]), gray4<W>(w[3], w[4], w[5]),
                   gray4<W>(w[6], w[7], w[8]), gray4<W>(w[9], w[10], w[11]));
  } else {
#pragma unroll 4
    for (int64_t i = max(x, int64_t{0}); i < min(x + kGroup, width); ++i) {
      out_row[i] = gray_pixel<W>(in_row + 3 * i, 1);
    }
  }
}

// Which picture, row and item of the row this thread has.
struct Place {
  int64_t n, y, x;
};

__device__ __forceinline__ Place place() {
  return {blockIdx.z, int64_t{blockIdx.y} * blockDim.y + threadIdx.y,
          int64_t{blockIdx.x} * blockDim.x + threadIdx.x};
}

}  // namespace

// -- kernels; static, because each launch pays for the long name of an anonymous namespace ---

// Packed pixels, rows at any address: a row's gray bytes are cut at the aligned addresses, so that
// it may own only a part of its first and last group. [begin, end) is what may be read of in.
template <class W>
static __global__ void __launch_bounds__(kThreads)
    gray_packed_kernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, Layout layout,
                       const uint8_t* begin, const uint8_t* end) {
  const Place at = place();
  if (at.y >= layout.height) return;
  const uint8_t* in_row = in + at.n * layout.in_batch + at.y * layout.in_row;
  uint8_t* out_row = out + at.n * layout.out_batch + at.y * layout.out_row;
  const int lead = static_cast<int>(reinterpret_cast<uintptr_t>(out_row) % kGroup);
  gray_group<W>(in_row, out_row, at.x * kGroup - lead, layout.width, begin, end);
}

// Any strides, planes for example: one pixel a thread.
template <class W>
static __global__ void __launch_bounds__(kThreads)
    gray_strided_kernel(const uint8_t* __restrict__ in, uint8_t* __restrict__ out, Layout layout) {
  const Place at = place();
  if (at.y >= layout.height || at.x >= layout.width) return;
  const uint8_t* p = in + at.n * layout.in_batch + at.y * layout.in_row + at.x * layout.in_pixel;
  out[at.n * layout.out_batch + at.y * layout.out_row + at.x] = gray_pixel<W>(p, layout.in_channel);
}

namespace {

template <class W>
cudaError_t launch(const uint8_t* in, uint8_t* out, const Layout& layout, cudaStream_t stream) {
  // A row that starts inside a group touches one group more than its width fills.
  const int64_t items = layout.packed() ? (layout.width + 2 * (kGroup - 1)) / kGroup : layout.width;
  unsigned wide = 1;
  while (wide < kThreads && wide < items) wide *= 2;
  const dim3 block(wide, kThreads / wide);
  const dim3 grid(static_cast<unsigned>((items + wide - 1) / wide),
                  static_cast<unsigned>((layout.height + block.y - 1) / block.y),
                  static_cast<unsigned>(layout.batch));
  if (layout.packed()) {
    gray_packed_kernel<W><<<grid, block, 0, stream>>>(in, out, layout, in, in + layout.in_extent());
  } else {
    gray_strided_kernel<W><<<grid, block, 0, stream>>>(in, out, layout);
  }
  return cudaGetLastError();
}

// A grid holds 65535 rows of blocks and as many pictures: more of them are more launches.
template <class W>
cudaError_t launch_all(const uint8_t* in, uint8_t* out, const Layout& layout, cudaStream_t stream) {
  constexpr int64_t kMost = 65535;
  for (int64_t n = 0; n < layout.batch; n += kMost) {
    for (int64_t y = 0; y < layout.height; y += kMost) {
      Layout part = layout;
      part.batch = std::min(kMost, layout.batch - n);
      part.height = std::min(kMost, layout.height - y);
      const cudaError_t error =
          launch<W>(in + n * layout.in_batch + y * layout.in_row,
                    out + n * layout.out_batch + y * layout.out_row, part, stream);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t gray_launch(const uint8_t* in, uint8_t* out, const Layout& layout, Weights weights,
                        cudaStream_t stream) {
  if (layout.pixels() == 0) return cudaSuccess;
  const Layout rows = collapse(layout);
  return with_weights(weights,
                      [&](auto w) { return launch_all<decltype(w)>(in, out, rows, stream); });
}

}  // namespace img2gray
