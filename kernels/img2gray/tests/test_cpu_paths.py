# SPDX-License-Identifier: Apache-2.0
"""Each way through img2gray_cpu.cpp that this processor can take, on all colours and all widths.

A build takes the fastest way alone, so the slower ones are compiled here, without torch.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from kernforge.testing import load_beside

PROJECT = Path(__file__).parents[1]
WAYS = {"fastest": (), "baseline": ("-DIMG2GRAY_BASELINE",), "plain": ("-DIMG2GRAY_PLAIN",)}

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def reference():
    return load_beside(__file__, "reference").img2gray


@pytest.fixture(scope="module", params=WAYS)
def gray_row(request, tmp_path_factory):
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler here")
    library = tmp_path_factory.mktemp("cpu_paths") / f"{request.param}.so"
    sources = (PROJECT / "tests" / "cpu_paths.cpp", PROJECT / "img2gray_cpu.cpp")
    flags = (
        "-std=c++17",
        "-O2",
        "-ffp-contract=off",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Wextra",
        "-Werror",
    )
    subprocess.run(
        [compiler, *flags, *WAYS[request.param], *map(str, sources), "-o", str(library)], check=True
    )
    function = ctypes.CDLL(str(library)).gray_row
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    function.restype = None
    return function


@pytest.mark.parametrize(
    ("number", "asked"),
    [
        (0, ("default", "nearest")),
        (1, ("bt601", "nearest")),
        (2, ("default", "truncate")),
        (3, ("bt601", "truncate")),
    ],
)
def test_all_colours(gray_row, reference, number, asked):
    value = torch.arange(256, dtype=torch.uint8)
    for red in range(0, 256, 64):
        image = torch.cartesian_prod(value[red : red + 64], value, value).contiguous()
        out = torch.empty(len(image), dtype=torch.uint8)
        gray_row(image.data_ptr(), out.data_ptr(), len(image), number)
        assert torch.equal(out, reference(image, *asked))


def test_every_width_writes_its_own_bytes_alone(gray_row, reference):
    torch.manual_seed(7)
    for width in range(130):
        image = torch.randint(0, 256, (width, 3), dtype=torch.uint8)
        out = torch.full((width + 64,), 0xA5, dtype=torch.uint8)
        gray_row(image.data_ptr(), out.data_ptr() + 32, width, 0)
        assert torch.equal(out[32 : 32 + width], reference(image))
        assert bool((out[:32] == 0xA5).all())
        assert bool((out[32 + width :] == 0xA5).all())
