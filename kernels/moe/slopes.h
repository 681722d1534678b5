// SPDX-License-Identifier: Apache-2.0
//
// The gradient of silu(gate) * up, as the CPU's and the GPU's sources use it.

#pragma once

#include "kernforge/dtype.h"

namespace moe {

// The value, and its derivatives in the gate and in up.
template <class W>
struct Slopes {
  W value, gate, up;
};

// `sigmoid` is that of the gate.
template <class W>
KERNFORGE_HOST_DEVICE inline Slopes<W> slopes_of(W gate, W up, W sigmoid) {
  const W silu = gate * sigmoid;
  return {silu * up, up * (sigmoid + silu * (1 - sigmoid)), silu};
}

}  // namespace moe
