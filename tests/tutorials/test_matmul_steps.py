# SPDX-License-Identifier: Apache-2.0
"""The eight matrix products of docs/explanation/matmul-in-eight-steps.md: compiled and right."""

import ctypes
import os
import re
from pathlib import Path

import pytest
from support.programs import output

from kernforge.toolchain.installed import find_cuda

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.native, pytest.mark.torch]

ROOT = Path(__file__).parents[2]
STEPS = Path(__file__).parent / "matmul_steps"
SEARCH = f"-I{ROOT}/src/kernforge/include/csrc"


def nvcc(*options):
    toolkit = find_cuda(os.environ)
    if toolkit is None:
        pytest.skip("there is no installed toolkit")
    output((toolkit / "bin/nvcc", "-std=c++20", SEARCH, *options, STEPS / "steps.cu"))


def test_each_step_uses_its_instructions(tmp_path):
    nvcc("-ptx", "-arch=compute_90a", "-Werror", "all-warnings", "-o", tmp_path / "a.ptx")
    kernels = re.split(r"\.entry ", (tmp_path / "a.ptx").read_text())[1:]
    of = {}
    for text in kernels:
        name = re.match(r"\S+?(step\d)\S*matmul|\S+", text)
        of[name[1] or "step8"] = text
    assert len(of) == 8
    marks = ("ld.shared", "cp.async.c", "mma.sync", "wgmma.mma_async", "multicast::cluster")
    seen = {step: [mark for mark in marks if mark in text] for step, text in of.items()}
    assert seen == {
        "step1": [],
        "step2": [],
        "step3": ["ld.shared"],
        "step4": ["ld.shared"],
        "step5": ["ld.shared", "cp.async.c"],
        "step6": ["cp.async.c", "mma.sync"],
        "step7": ["wgmma.mma_async"],
        "step8": ["wgmma.mma_async", "multicast::cluster"],
    }


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="no GPU of compute capability 9.0 here",
)
def test_each_step_is_right(tmp_path):
    target = "-gencode=arch=compute_90a,code=sm_90a"
    nvcc(target, "-O3", "-shared", "-Xcompiler", "-fPIC", "-o", tmp_path / "steps.so")
    library = ctypes.CDLL(str(tmp_path / "steps.so"))
    for rows, depth, columns in ((256, 256, 256), (1024, 512, 768)):
        a = torch.randn(rows, depth, device="cuda").bfloat16()
        b = torch.randn(depth, columns, device="cuda").bfloat16()
        exact = a.double() @ b.double()
        for step in range(1, 9):
            c = torch.full((rows, columns), float("nan"), device="cuda").bfloat16()
            pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            assert library.matmul_step(step, *pointers, rows, columns, depth, stream) == 0
            assert ((c.double() - exact).norm() / exact.norm()).item() < 3e-3, step
