# SPDX-License-Identifier: Apache-2.0
"""The operators of broken.cu, compiled for this process: ``honest``, and one for each fault."""

import functools
from pathlib import Path

import torch

import kernforge

HERE = Path(__file__).parent
NAMES = (
    *("honest", "write_behind", "read_behind", "wrong_tail", "missing_sync", "missing_warp_sync"),
    *("divergent_barrier", "uninitialised", "float_atomics", "swallowed_nan"),
    *("misaligned_vectors", "index_of_32_bits", "default_stream", "own_stream"),
    *("own_stream_not_joined", "sync_inside", "malloc_inside", "ignored_stride"),
    "no_device_guard",
)


@functools.cache
def twice():
    """``twice(x, fault)`` for float32 on CUDA; 0 is no fault."""
    sources = [HERE / "broken.cu", HERE / "broken_binding.cpp"]
    kernforge.load("broken_cuda", sources, ["-DUSE_CUDA"], is_python_module=False)
    op = torch.ops.broken_cuda.twice.default
    torch.library.register_fake(op)(lambda x, fault: torch.empty(x.shape, device=x.device))
    torch.library.register_autograd("broken_cuda::twice", lambda ctx, grad: (grad * 2, None))
    return op


class Operator:
    """One of them, found when it is called: a module that names them needs no GPU."""

    def __init__(self, name):
        self.fault = NAMES.index(name)

    def __call__(self, x):
        return twice()(x, self.fault)
