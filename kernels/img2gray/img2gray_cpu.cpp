// SPDX-License-Identifier: Apache-2.0
//
// RGB to gray on CPUs: uint8 [N, H, W, 3] to uint8 [N, H, W], weights as in img2gray.h.
//
// A row is cut into blocks of 16 or 32 pixels; its last block overlaps the one before it, so only
// rows narrower than a block are done pixel by pixel. A block reads and writes its own bytes alone.
// x86-64: SSE2, and AVX2 where the processor has it, found out when it runs. 64-bit Arm: NEON.
// Everything else, any layout whose pixels are not packed, and what is truncated: plain C++.

#include <algorithm>

#include "img2gray.h"

#if defined(__x86_64__) && !defined(IMG2GRAY_PLAIN)
#include <immintrin.h>
#elif defined(__aarch64__) && !defined(IMG2GRAY_PLAIN)
#include <arm_neon.h>
#endif

namespace img2gray {
namespace {

template <class W>
inline uint8_t gray_pixel(const uint8_t* p, int64_t channel) {
  if constexpr (kTruncates<W>) {
    return static_cast<uint8_t>(W::kRed * p[0] + W::kGreen * p[channel] +
                                W::kBlue * p[2 * channel]);
  } else {
    const uint32_t sum =
        W::kRed * p[0] + W::kGreen * p[channel] + W::kBlue * p[2 * channel] + W::kHalf;
    return static_cast<uint8_t>((sum >> W::kPreShift) * Reciprocal<W, 24>::value >> 24);
  }
}

#if defined(__x86_64__) && !defined(IMG2GRAY_PLAIN)

// (sum * reciprocal) >> 22: the multiplication keeps the upper 16 bits, the shift does the rest.
template <class W>
constexpr short kReciprocal = static_cast<short>(Reciprocal<W, 22>::value);

template <class W>
struct Sse2Block {
  static constexpr int kPixels = 16;

  // Four pixels -> four sums of 32 bits.
  static __m128i sums(const uint8_t* p) {
    const auto word = [p](int at) {
      int value;
      __builtin_memcpy(&value, p + at, 4);
      return value;
    };
    // The fourth pixel's word starts a byte early, so that nothing behind the block is read.
    const __m128i rgb = _mm_set_epi32(static_cast<int>(static_cast<unsigned>(word(8)) >> 8),
                                      word(6), word(3), word(0));
    const __m128i zero = _mm_setzero_si128();
    const __m128i weights =
        _mm_set_epi16(0, W::kBlue, W::kGreen, W::kRed, 0, W::kBlue, W::kGreen, W::kRed);
    const __m128 low = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpacklo_epi8(rgb, zero), weights));
    const __m128 high = _mm_castsi128_ps(_mm_madd_epi16(_mm_unpackhi_epi8(rgb, zero), weights));
    const __m128i red_green = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(2, 0, 2, 0)));
    const __m128i blue = _mm_castps_si128(_mm_shuffle_ps(low, high, _MM_SHUFFLE(3, 1, 3, 1)));
    const __m128i sum = _mm_add_epi32(_mm_add_epi32(red_green, blue), _mm_set1_epi32(W::kHalf));
    return _mm_srli_epi32(sum, W::kPreShift);
  }

  static __m128i quotients(__m128i first, __m128i last) {
    const __m128i sum = _mm_packs_epi32(first, last);
    return _mm_srli_epi16(_mm_mulhi_epu16(sum, _mm_set1_epi16(kReciprocal<W>)), 6);
  }

  static void run(const uint8_t* in, uint8_t* out) {
    const __m128i gray = _mm_packus_epi16(quotients(sums(in), sums(in + 12)),
                                          quotients(sums(in + 24), sums(in + 36)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), gray);
  }
};

#define IMG2GRAY_AVX2 __attribute__((target("avx2")))

template <class W>
struct Avx2Block {
  static constexpr int kPixels = 32;

  // Pixels 4k..4k+3 of the block's first half and of its second half -> eight sums of 32 bits.
  template <int kQuad>
  IMG2GRAY_AVX2 static __m256i sums(const uint8_t* in) {
    // The last quad is loaded 4 bytes early, so that nothing behind the block is read.
    constexpr int kAt = kQuad < 3 ? 12 * kQuad : 32;
    constexpr char s = kQuad < 3 ? 0 : 4;
    const __m128i order = _mm_setr_epi8(s, s + 1, s + 2, -1, s + 3, s + 4, s + 5, -1, s + 6, s + 7,
                                        s + 8, -1, s + 9, s + 10, s + 11, -1);
    const __m256i rgb = _mm256_shuffle_epi8(
        _mm256_inserti128_si256(_mm256_castsi128_si256(load(in + kAt)), load(in + 48 + kAt), 1),
        _mm256_broadcastsi128_si256(order));
    // Products of bytes with signed bytes: a weight over 127 is split into weight % 256 and / 256.
    static_assert(W::kRed % 256 < 128 && W::kGreen % 256 < 128 && W::kBlue % 256 < 128,
                  "the low byte of a weight is a positive signed byte");
    static_assert(255 * (W::kRed % 256 + W::kGreen % 256) < 32768, "no product sum saturates");
    const __m256i low = _mm256_maddubs_epi16(rgb, _mm256_set1_epi32(bytes(0)));
    __m256i sum = _mm256_madd_epi16(low, _mm256_set1_epi16(1));
    if constexpr (bytes(8) != 0) {
      const __m256i high = _mm256_maddubs_epi16(rgb, _mm256_set1_epi32(bytes(8)));
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, _mm256_set1_epi16(256)));
    }
    return _mm256_srli_epi32(_mm256_add_epi32(sum, _mm256_set1_epi32(W::kHalf)), W::kPreShift);
  }

  IMG2GRAY_AVX2 static __m128i load(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }

  static constexpr int bytes(int shift) {
    return static_cast<int>((W::kRed >> shift & 255) | (W::kGreen >> shift & 255) << 8 |
                            (W::kBlue >> shift & 255) << 16);
  }

  IMG2GRAY_AVX2 static __m256i quotients(__m256i first, __m256i last) {
    const __m256i sum = _mm256_packs_epi32(first, last);
    return _mm256_srli_epi16(_mm256_mulhi_epu16(sum, _mm256_set1_epi16(kReciprocal<W>)), 6);
  }

  IMG2GRAY_AVX2 static void run(const uint8_t* in, uint8_t* out) {
    const __m256i gray = _mm256_packus_epi16(quotients(sums<0>(in), sums<1>(in)),
                                             quotients(sums<2>(in), sums<3>(in)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), gray);
  }
};

#elif defined(__aarch64__) && !defined(IMG2GRAY_PLAIN)

template <class W>
struct NeonBlock {
  static constexpr int kPixels = 16;

  // Four pixels of 16-bit channels -> four sums that fit 16 bits.
  static uint16x4_t sums(uint16x4_t red, uint16x4_t green, uint16x4_t blue) {
    uint32x4_t sum = vdupq_n_u32(W::kHalf);
    sum = vmlal_n_u16(sum, red, W::kRed);
    sum = vmlal_n_u16(sum, green, W::kGreen);
    sum = vmlal_n_u16(sum, blue, W::kBlue);
    return vmovn_u32(vshlq_u32(sum, vdupq_n_s32(-W::kPreShift)));
  }

  static uint8x8_t gray(uint16x8_t red, uint16x8_t green, uint16x8_t blue) {
    constexpr uint16_t kReciprocal = static_cast<uint16_t>(Reciprocal<W, 22>::value);
    const uint16x4_t low = sums(vget_low_u16(red), vget_low_u16(green), vget_low_u16(blue));
    const uint16x4_t high = sums(vget_high_u16(red), vget_high_u16(green), vget_high_u16(blue));
    const uint16x8_t upper = vcombine_u16(vshrn_n_u32(vmull_n_u16(low, kReciprocal), 16),
                                          vshrn_n_u32(vmull_n_u16(high, kReciprocal), 16));
    return vshrn_n_u16(upper, 6);
  }

  static void run(const uint8_t* in, uint8_t* out) {
    const uint8x16x3_t rgb = vld3q_u8(in);
    const uint8x16_t red = rgb.val[0], green = rgb.val[1], blue = rgb.val[2];
    vst1q_u8(out, vcombine_u8(gray(vmovl_u8(vget_low_u8(red)), vmovl_u8(vget_low_u8(green)),
                                   vmovl_u8(vget_low_u8(blue))),
                              gray(vmovl_high_u8(red), vmovl_high_u8(green), vmovl_high_u8(blue))));
  }
};

#endif

// How to do `count` packed pixels.
using Row = void (*)(const uint8_t* in, uint8_t* out, int64_t count);

template <class W>
void plain_row(const uint8_t* in, uint8_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = gray_pixel<W>(in + 3 * i, 1);
}

// The loop over a row's blocks, in a function of the block's own target so that it is inlined.
#define IMG2GRAY_BLOCK_ROW(NAME, BLOCK, TARGET)                                  \
  template <class W>                                                             \
  TARGET void NAME(const uint8_t* in, uint8_t* out, int64_t count) {             \
    using Block = BLOCK<W>;                                                      \
    constexpr int64_t n = Block::kPixels;                                        \
    if (count < n) return plain_row<W>(in, out, count);                          \
    for (int64_t i = 0; i + n <= count; i += n) Block::run(in + 3 * i, out + i); \
    if (count % n != 0) Block::run(in + 3 * (count - n), out + count - n);       \
  }

#if defined(__x86_64__) && !defined(IMG2GRAY_PLAIN)
IMG2GRAY_BLOCK_ROW(sse2_row, Sse2Block, )
IMG2GRAY_BLOCK_ROW(avx2_row, Avx2Block, IMG2GRAY_AVX2)
#elif defined(__aarch64__) && !defined(IMG2GRAY_PLAIN)
IMG2GRAY_BLOCK_ROW(neon_row, NeonBlock, )
#endif

template <class W>
Row fastest_row() {
  if constexpr (kTruncates<W>) {
    return plain_row<W>;
  } else {
#if defined(__x86_64__) && !defined(IMG2GRAY_PLAIN)
#if !defined(IMG2GRAY_BASELINE)
    if (__builtin_cpu_supports("avx2")) return avx2_row<W>;
#endif
    return sse2_row<W>;
#elif defined(__aarch64__) && !defined(IMG2GRAY_PLAIN)
    return neon_row<W>;
#else
    return plain_row<W>;
#endif
  }
}

template <class W>
void gray_range(const uint8_t* in, uint8_t* out, const Layout& layout, int64_t begin, int64_t end) {
  static const Row row = fastest_row<W>();
  const int64_t width = layout.width;
  while (begin < end) {
    const int64_t y = begin / width, x = begin % width;
    const int64_t count = std::min(width - x, end - begin);
    const int64_t n = y / layout.height, line = y % layout.height;
    const uint8_t* from = in + n * layout.in_batch + line * layout.in_row + x * layout.in_pixel;
    uint8_t* to = out + n * layout.out_batch + line * layout.out_row + x;
    if (layout.packed()) {
      row(from, to, count);
    } else {
      for (int64_t i = 0; i < count; ++i) {
        to[i] = gray_pixel<W>(from + i * layout.in_pixel, layout.in_channel);
      }
    }
    begin += count;
  }
}

}  // namespace

void gray_cpu(const uint8_t* in, uint8_t* out, const Layout& layout, Weights weights, int64_t begin,
              int64_t end) {
  const Layout rows = collapse(layout);
  with_weights(weights, [&](auto w) { gray_range<decltype(w)>(in, out, rows, begin, end); });
}

}  // namespace img2gray
