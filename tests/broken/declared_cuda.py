# SPDX-License-Identifier: Apache-2.0
"""Every operator of broken.cu under all checks; ``test_broken_cuda`` says what must come of it."""

import torch
from cuda_kernels import NAMES, Operator, load

from kernforge.testing import op_tests

if torch.cuda.is_available():
    load()

# The fault is the kernel's, not what torch is told of it.
OF_TORCH = dict.fromkeys(
    ("opcheck", "compile", "gradients", "compiled_gradients"),
    "the honest operator stands for it",
)
LARGE = ("honest", "index_of_32_bits")


def under_test(name):
    return op_tests(
        op=Operator(name),
        reference=lambda x: x * 2,
        inputs=lambda draw, shape: (draw(shape),),
        views=("transposed", "every second", "one repeated", "1 elements in", "4 elements in"),
        devices=("cuda",),
        backward=True,
        elementwise=True,
        large=(2**31 + 17,) if name in LARGE else None,
        leave_out={} if name == "honest" else OF_TORCH,
    )


globals().update({"Test" + name.title().replace("_", ""): under_test(name) for name in NAMES})
