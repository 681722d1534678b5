# SPDX-License-Identifier: Apache-2.0
"""What modules that are compiled in this process take of the GPU's memory.

Apart from the JIT's other tests on a GPU, because whatever runs beside it takes memory too.
"""

import pytest
from native import test_jit_gpu

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.native,
    pytest.mark.torch,
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
home, x, stable = test_jit_gpu.home, test_jit_gpu.x, test_jit_gpu.stable


def test_fifty_builds_take_no_memory_of_the_gpu_but_their_code(x):
    """What the driver keeps of a module is its code, in blocks of 2 MiB."""
    stable("a * x[i]")(x, 2.0)
    for number in range(20):
        stable(f"a * x[i] + {number}")(x, 2.0)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for number in range(20, 70):
        stable(f"a * x[i] + {number}")(x, 2.0)
    torch.cuda.synchronize()
    taken = (before - torch.cuda.mem_get_info()[0]) / 50 / 2**20
    assert taken <= 4  # MiB each
