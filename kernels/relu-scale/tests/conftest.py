# SPDX-License-Identifier: Apache-2.0
"""Which build is tested, and on what.

``KERNFORGE_KERNEL_DIR`` names a directory of builds; without it, what was built in this project is
taken, and if nothing was, the tests are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.errors import NoVariantError

PROJECT = Path(__file__).parents[1]


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU")
    config.addinivalue_line("markers", "native: starts a real compiler")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    return request.param


@pytest.fixture
def kernel(device):
    built = PROJECT if (PROJECT / "build").is_dir() else None
    directory = os.environ.get("KERNFORGE_KERNEL_DIR") or built
    if directory is None:
        pytest.skip("not built: kernforge build kernels/relu-scale")
    try:
        return kernforge.get_local_kernel(Path(directory), backend=device)
    except NoVariantError as error:
        pytest.skip(f"no build for {device}: {error}")
