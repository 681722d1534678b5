// SPDX-License-Identifier: Apache-2.0
//
// What host code of a CUDA source finds under nvcc without including anything: min and max of
// numbers in the global namespace. clang declares them for device code alone.
#pragma once

#define KERNFORGE_MIN_MAX(result, left, right)                          \
  inline __host__ result min(left a, right b) { return a < b ? a : b; } \
  inline __host__ result max(left a, right b) { return a > b ? a : b; }
#define KERNFORGE_MIN_MAX_MIXED(result, other) \
  KERNFORGE_MIN_MAX(result, result, result)    \
  KERNFORGE_MIN_MAX(result, other, result)     \
  KERNFORGE_MIN_MAX(result, result, other)

KERNFORGE_MIN_MAX(int, int, int)
KERNFORGE_MIN_MAX(long, long, long)
KERNFORGE_MIN_MAX(long long, long long, long long)
KERNFORGE_MIN_MAX(float, float, float)
KERNFORGE_MIN_MAX_MIXED(unsigned, int)
KERNFORGE_MIN_MAX_MIXED(unsigned long, long)
KERNFORGE_MIN_MAX_MIXED(unsigned long long, long long)
KERNFORGE_MIN_MAX_MIXED(double, float)

#undef KERNFORGE_MIN_MAX_MIXED
#undef KERNFORGE_MIN_MAX
