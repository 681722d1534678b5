// SPDX-License-Identifier: Apache-2.0
//
// Numbers of any type as unsigned keys of their size, whose order is that of torch.sort: NaN is the
// greatest, whatever its bits, and -0.0 equals 0.0. The CPU and the GPU use the same keys.

#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define BITONIC_SORT_BOTH __host__ __device__ __forceinline__
#else
#define BITONIC_SORT_BOTH inline
#endif

namespace bitonic_sort {

enum class Kind { kUnsigned, kSigned, kFloat };

// Of elements of `bits` bits. `fraction` is the number of bits behind a float's exponent.
struct Order {
  Kind kind;
  int bits, fraction;
  bool descending;
};

// Order for elements with the bits of U, as masks: one formula serves every type.
template <class U>
struct Keys {
  U positive, negative;   // what the bits of a number above and below 0 differ by from its key
  U magnitude, infinity;  // of a float without its sign; all ones for integers
  U zero, nan;            // keys

  static constexpr int kBits = 8 * sizeof(U);

  explicit Keys(const Order& order) {
    const U sign = static_cast<U>(U{1} << (kBits - 1)), all = static_cast<U>(~U{0});
    const U turned = order.descending ? all : U{0};
    const bool is_float = order.kind == Kind::kFloat;
    positive = static_cast<U>((order.kind == Kind::kUnsigned ? U{0} : sign) ^ turned);
    negative = is_float ? static_cast<U>(~turned) : positive;
    magnitude = is_float ? static_cast<U>(~sign) : all;
    infinity = is_float ? static_cast<U>((all >> 1 >> order.fraction) << order.fraction) : all;
    zero = positive;
    nan = static_cast<U>(~turned);
  }

  BITONIC_SORT_BOTH U key(U number) const {
    const U size = number & magnitude;
    const U whole = size == 0 ? U{0} : number;
    const U at = whole ^ (whole >> (kBits - 1) ? negative : positive);
    return size > infinity ? nan : at;
  }

  BITONIC_SORT_BOTH bool is_float() const { return magnitude != static_cast<U>(~U{0}); }
  BITONIC_SORT_BOTH bool is_descending() const { return nan == U{0}; }

  // The number of a key, but for floats whose key is `zero` or `nan`: several numbers have those.
  BITONIC_SORT_BOTH U number(U key) const {
    const U other = key ^ negative;
    return other >> (kBits - 1) ? other : static_cast<U>(key ^ positive);
  }
  BITONIC_SORT_BOTH bool several(U key) const { return is_float() && (key == zero || key == nan); }
};

}  // namespace bitonic_sort
