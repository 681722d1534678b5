// SPDX-License-Identifier: Apache-2.0
//
// What bindings on both of torch's interfaces share: a build holds one backend. KERNFORGE_BUILT_KEY
// is its dispatch key for TORCH_LIBRARY_IMPL_EXPAND and STABLE_TORCH_LIBRARY_IMPL_EXPAND; for a
// tensor on another device torch's dispatcher says what the operator has.

#pragma once

#if defined(CUDA_KERNEL)
#define KERNFORGE_BUILT_KEY CUDA
#else
#define KERNFORGE_BUILT_KEY CPU
#endif
