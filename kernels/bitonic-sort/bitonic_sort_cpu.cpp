// SPDX-License-Identifier: Apache-2.0
//
// Sorted rows on CPUs: short ones by comparison, longer ones by the digits of their keys, of which
// those that all elements share are left out.

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "bitonic_sort.h"

namespace bitonic_sort {
namespace {

template <class U>
struct Item {
  U key;
  uint32_t at;
};

constexpr int64_t kShort = 256;  // elements that a comparison sort orders faster than digits do

template <class U>
void by_digits(std::vector<Item<U>>* items, std::vector<Item<U>>* other) {
  constexpr int kDigits = sizeof(U);
  std::array<std::array<uint32_t, 256>, kDigits> counts{};
  for (const Item<U>& item : *items) {
    for (int d = 0; d < kDigits; ++d) ++counts[d][item.key >> (8 * d) & 255];
  }
  other->resize(items->size());
  for (int d = 0; d < kDigits; ++d) {
    const auto digit = [d](const Item<U>& item) { return item.key >> (8 * d) & 255; };
    if (counts[d][digit(items->front())] == items->size()) continue;
    uint32_t before = 0;
    for (uint32_t& count : counts[d]) {
      const uint32_t here = count;
      count = before;
      before += here;
    }
    for (const Item<U>& item : *items) (*other)[counts[d][digit(item)]++] = item;
    items->swap(*other);
  }
}

template <class U>
void sort(const Order& order, const Rows& of, int64_t begin, int64_t end) {
  const Keys<U> keys(order);
  std::vector<Item<U>> items(of.length), other;
  const auto before = [](const Item<U>& a, const Item<U>& b) {
    return a.key != b.key ? a.key < b.key : a.at < b.at;
  };
  for (int64_t row = begin; row < end; ++row) {
    const U* x = static_cast<const U*>(of.x) + row * of.length;
    for (int64_t i = 0; i < of.length; ++i) items[i] = {keys.key(x[i]), static_cast<uint32_t>(i)};
    if (of.keep < of.length / 8) {
      std::partial_sort(items.begin(), items.begin() + of.keep, items.end(), before);
    } else if (of.length <= kShort) {
      std::sort(items.begin(), items.end(), before);
    } else {
      by_digits(&items, &other);
    }
    U* values = static_cast<U*>(of.values) + row * of.keep;
    int64_t* indices = of.indices + row * of.keep;
    for (int64_t i = 0; i < of.keep; ++i) {
      values[i] = x[items[i].at];
      indices[i] = items[i].at;
    }
  }
}

}  // namespace

void sort_cpu(const Order& order, const Rows& of, int64_t begin, int64_t end) {
  switch (order.bits) {
    case 8:
      return sort<uint8_t>(order, of, begin, end);
    case 16:
      return sort<uint16_t>(order, of, begin, end);
    case 32:
      return sort<uint32_t>(order, of, begin, end);
    default:
      return sort<uint64_t>(order, of, begin, end);
  }
}

}  // namespace bitonic_sort
