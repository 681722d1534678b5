# SPDX-License-Identifier: Apache-2.0
"""A registry in a directory."""

import pytest

from kernforge.registry.directory import DirectoryRegistry


@pytest.fixture
def registry(tmp_path):
    return DirectoryRegistry(tmp_path / "registry")
