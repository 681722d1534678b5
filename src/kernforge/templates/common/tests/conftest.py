# SPDX-License-Identifier: __LICENSE__
"""Which build is tested: KERNFORGE_KERNEL_DIR, or what `kernforge build` left in build/."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.errors import NoVariantError

BUILD = Path(__file__).parents[1] / "build"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    return request.param


@pytest.fixture
def kernel(device):
    directory = Path(os.environ.get("KERNFORGE_KERNEL_DIR", BUILD))
    try:
        return kernforge.get_local_kernel(directory, backend=device)
    except NoVariantError as error:
        pytest.skip(f"no build for {device}: {error}")
