// SPDX-License-Identifier: Apache-2.0
//
// One row through the CPU path, by a name that ctypes finds.

#include "../img2gray.h"

extern "C" void gray_row(const uint8_t* in, uint8_t* out, int64_t width, int64_t weights) {
  const img2gray::Layout layout{1, 1, width, 0, 3 * width, 3, 1, 0, width};
  img2gray::gray_cpu(in, out, layout, static_cast<img2gray::Weights>(weights), 0, width);
}
