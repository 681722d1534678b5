# SPDX-License-Identifier: Apache-2.0
"""A machine with torch for the CPU, and kernels to publish in its registry."""

import pytest
from support.kernels import CPU_HOST

from kernforge.loader import api as loading, search
from kernforge.publish.api import publish


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with torch for the CPU, without the seconds that importing it takes."""
    hosts = {None: CPU_HOST, "cpu": CPU_HOST}
    monkeypatch.setattr(loading, "probe", hosts.__getitem__)
    monkeypatch.setattr(loading, "probe_to_load", hosts.__getitem__)
    monkeypatch.setattr(search, "probe", lambda backend=None: hosts[backend])
    monkeypatch.setattr(search, "probe_to_load", hosts.__getitem__)
    monkeypatch.setattr(search, "with_device", lambda host: host)
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    return hosts


@pytest.fixture
def put(tmp_path, write_variant, machine, registry, request):
    """A function that publishes a kernel and returns its commit."""
    count = iter(range(100))

    def publish_kernel(repo_id, version=None, **fields):
        number = next(count)
        unique = f"{request.node.name[5:30]}{number}".replace("-", "_").replace("[", "_")
        build = tmp_path / f"build-{number}"
        write_variant(build, variant="torch-universal", unique=unique, **fields)
        return publish(build, registry, repo_id, version).commit

    return publish_kernel
