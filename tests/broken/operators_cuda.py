# SPDX-License-Identifier: Apache-2.0
"""The operators of broken.cu under all checks, ``honest`` and one for each fault.

The JIT compiles them; ``test_broken`` says which checks must fail.
"""

from pathlib import Path

import torch

import kernforge
from kernforge.testing import op_tests

HERE = Path(__file__).parent
NAMES = (
    *("honest", "write_behind", "read_behind", "wrong_tail", "missing_sync", "missing_warp_sync"),
    *("divergent_barrier", "uninitialised", "float_atomics", "swallowed_nan"),
    *("misaligned_vectors", "index_of_32_bits", "default_stream", "own_stream"),
    *("own_stream_not_joined", "sync_inside", "malloc_inside", "ignored_stride"),
    "no_device_guard",
)


def load():
    """Compile them, and register ``broken_cuda::twice(x, fault)`` for float32 on CUDA."""
    sources = [HERE / "broken.cu", HERE / "broken_binding.cpp"]
    kernforge.load("broken_cuda", sources, ["-DUSE_CUDA"], is_python_module=False)
    torch.library.register_fake("broken_cuda::twice")(lambda x, fault: x.new_empty(x.shape))
    return torch.ops.broken_cuda.twice


class _Differentiable(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, fault):
        return torch.ops.broken_cuda.twice(x, fault)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


class Operator:
    """One of them by its name."""

    def __init__(self, name):
        self.fault = NAMES.index(name)

    def __call__(self, x):
        return _Differentiable.apply(x, self.fault)


if torch.cuda.is_available():
    load()

# The fault is the kernel's, not what torch is told of it.
OF_TORCH = dict.fromkeys(
    ("opcheck", "compile", "gradients", "compiled_gradients"),
    "the honest operator stands for it",
)
for _name in NAMES:
    globals()[f"Test{_name.title().replace('_', '')}"] = op_tests(
        op=Operator(_name),
        reference=lambda x: x * 2,
        inputs=lambda draw, shape: (draw(shape),),
        views=("transposed", "every second", "one repeated", "1 elements in", "4 elements in"),
        devices=("cuda",),
        backward=True,
        elementwise=True,
        large=(2**31 + 17,) if _name in {"honest", "index_of_32_bits"} else None,
        leave_out={} if _name == "honest" else OF_TORCH,
    )
