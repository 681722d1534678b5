# SPDX-License-Identifier: Apache-2.0
"""A project for commands."""

import pytest
from support.manifests import CPU_AND_METAL


@pytest.fixture
def project(tmp_path):
    (tmp_path / "build.toml").write_text(CPU_AND_METAL)
    for name in ("op.cpp", "op.mm"):
        (tmp_path / name).write_text("")
    return tmp_path
