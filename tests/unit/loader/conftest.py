# SPDX-License-Identifier: Apache-2.0
"""A machine with torch for the CPU, a registry, and kernels to publish in it."""

import itertools

import pytest
from support.kernels import CPU_HOST

from kernforge.loader import api as loading
from kernforge.loader import search
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

unique_ids = (f"{number:07x}" for number in itertools.count())


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
def registry(tmp_path, machine):
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def build(tmp_path, write_variant):
    """A function that creates a build directory with one variant and an id of its own."""

    def make_build(**fields):
        unique = fields.pop("unique", None) or next(unique_ids)
        directory = tmp_path / f"build-{unique}"
        write_variant(directory, unique=unique, **fields)
        return directory

    return make_build


@pytest.fixture
def put(tmp_path, write_variant, registry, request):
    """A function that publishes a kernel and returns its commit."""
    count = iter(range(100))

    def publish_kernel(repo_id, version=None, **fields):
        number = next(count)
        unique = f"{request.node.name[5:30]}{number}".replace("-", "_").replace("[", "_")
        build = tmp_path / f"build-{number}"
        write_variant(build, variant="torch-universal", unique=unique, **fields)
        return publish(build, registry, repo_id, version).commit

    return publish_kernel
