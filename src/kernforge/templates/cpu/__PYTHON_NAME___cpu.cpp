// SPDX-License-Identifier: __LICENSE__
//
// y = max(x, 0) * scale on CPUs. The loops are plain, so the compiler makes vectors of them; the
// binding calls run_cpu from several threads, each for its own range.

#include <cstring>

#include "__PYTHON_NAME__.h"

namespace __PYTHON_NAME___kernel {
namespace {

template <typename To, typename From>
To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are copied one to one");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// The 16-bit types as bits; conversions round to the nearest, ties to even.
struct Float32 {
  using Bits = float;
  static float load(float v) { return v; }
  static float store(float v) { return v; }
};

struct BFloat16 {
  using Bits = uint16_t;
  static float load(uint16_t v) { return bits_as<float>(uint32_t{v} << 16); }
  static uint16_t store(float v) {
    const uint32_t bits = bits_as<uint32_t>(v);
    if (v != v) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
  }
};

struct Float16 {
  using Bits = uint16_t;
  static float load(uint16_t v) {
    const uint32_t sign = (v & 0x8000u) << 16, rest = v & 0x7FFFu;
    // 2^112 moves the exponent's bias from 15 to 127, for subnormals too.
    uint32_t bits = bits_as<uint32_t>(bits_as<float>(rest << 13) * 0x1p112f);
    if (rest >= 0x7C00) bits = 0x7F800000u | rest << 13;  // infinity and NaN
    return bits_as<float>(sign | bits);
  }
  static uint16_t store(float v) {
    const uint32_t bits = bits_as<uint32_t>(v), rest = bits & 0x7FFFFFFFu;
    const uint32_t sign = bits >> 16 & 0x8000u;
    if (rest > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00);   // NaN
    if (rest >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00);  // 65520 and more
    if (rest < 0x38800000u) {  // under 2^-14: adding 0.5 leaves the 10 bits, rounded, at the end
      const float sum = bits_as<float>(rest) + 0.5f;
      return static_cast<uint16_t>(sign | (bits_as<uint32_t>(sum) - 0x3F000000u));
    }
    return static_cast<uint16_t>(sign | (rest - 0x38000000u + 0xFFF + (rest >> 13 & 1)) >> 13);
  }
};

template <typename Type>
void run_typed(const void* x, void* y, float scale, int64_t begin, int64_t end) {
  using Bits = typename Type::Bits;
  const Bits* from = static_cast<const Bits*>(x);
  Bits* to = static_cast<Bits*>(y);
  for (int64_t i = begin; i < end; ++i) {
    const float v = Type::load(from[i]);
    to[i] = Type::store((v < 0.0f ? 0.0f : v) * scale);  // a NaN stays one
  }
}

}  // namespace

void run_cpu(const void* x, void* y, float scale, DType dtype, int64_t begin, int64_t end) {
  switch (dtype) {
    case DType::kFloat32:
      return run_typed<Float32>(x, y, scale, begin, end);
    case DType::kFloat16:
      return run_typed<Float16>(x, y, scale, begin, end);
    case DType::kBFloat16:
      return run_typed<BFloat16>(x, y, scale, begin, end);
  }
}

}  // namespace __PYTHON_NAME___kernel
