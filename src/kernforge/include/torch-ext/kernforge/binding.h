// SPDX-License-Identifier: Apache-2.0
//
// What bindings on both of torch's interfaces share: a build holds one backend, and says so for
// tensors on the device of the other one.
//
// KERNFORGE_BUILT_KEY and KERNFORGE_OTHER_KEY are dispatch keys for TORCH_LIBRARY_IMPL_EXPAND and
// STABLE_TORCH_LIBRARY_IMPL_EXPAND.

#pragma once

#if defined(CUDA_KERNEL)
#define KERNFORGE_BUILT_FOR "cuda"
#define KERNFORGE_BUILT_KEY CUDA
#define KERNFORGE_OTHER_KEY CPU
#else
#define KERNFORGE_BUILT_FOR "cpu"
#define KERNFORGE_BUILT_KEY CPU
#define KERNFORGE_OTHER_KEY CUDA
#endif
