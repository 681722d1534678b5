# SPDX-License-Identifier: Apache-2.0
"""The tests' indexes serve files of their own under the names of releases."""

import pytest

from kernforge.toolchain import projects


@pytest.fixture(autouse=True)
def _no_release_is_known(monkeypatch):
    monkeypatch.setattr(projects, "known_hashes", dict)
