# SPDX-License-Identifier: Apache-2.0
"""The tests' index serves files of their own under the names of releases."""

import pytest

from kernforge.store.local import Store
from kernforge.toolchain import projects
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.provision import Toolchains


@pytest.fixture(autouse=True)
def _no_release_is_known(monkeypatch):
    monkeypatch.setattr(projects, "known_hashes", dict)


@pytest.fixture
def wheels(index_server, transport, tmp_path, progress):
    index = Index(index_server.config, transport)
    return Wheels(lambda: index, tmp_path / "downloads", progress)


@pytest.fixture
def toolchains(tmp_path, wheels):
    return Toolchains(Store(tmp_path / "store"), wheels)
