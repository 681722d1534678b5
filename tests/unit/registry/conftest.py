# SPDX-License-Identifier: Apache-2.0
"""Retries without waiting, and a build to publish."""

import pytest
from support.registries import LIBRARY

from kernforge.system import http


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(http, "_WAITS_S", (0.0, 0.0, 0.0))


@pytest.fixture
def two_variants(tmp_path, write_variant):
    """A build for the CPU and for CUDA, each with a large file: ``LIBRARY``."""
    files = {"__init__.py": "", "deep/er.py": "x = 1\n", "toy.so": LIBRARY}
    for backend in ("cpu", "cuda"):
        variant = f"torch-{backend}"
        write_variant(tmp_path / "build", variant=variant, backend=backend, files=files)
    return tmp_path / "build"
