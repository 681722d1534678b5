# SPDX-License-Identifier: Apache-2.0
"""Kernels from an OCI registry that demands tokens: signatures of a policy, locks."""

import pytest
from support import policies
from support.oci_registries import requests_made
from support.policies import REPO, SIGNED, user

import kernforge
from kernforge.application import project_lock
from kernforge.loader import lock
from kernforge.publish.api import publish
from kernforge.registry.api import _server, open_registry
from kernforge.trust import signing


@pytest.fixture
def location(machine, monkeypatch, tmp_path, oci_registry):
    """A registry on a machine with torch for the CPU and without policies."""
    policies.without_policies(monkeypatch, tmp_path)
    return oci_registry(tokens=True)


def test_signed_kernel_loads_where_a_policy_demands_it(location, tmp_path, write_variant):
    key = signing.Key()
    user(SIGNED.format(key.public_text))
    built = write_variant(tmp_path / "build", unique="0c10001")
    signing.sign([built], key.sign)
    publish(built.parent, open_registry(location), REPO)
    _server.cache_clear()
    assert kernforge.get_kernel(REPO, version=1, registry=location).ANSWER == 42


def test_locked_kernel_loads_by_its_digest(location, tmp_path, write_variant, monkeypatch):
    old = write_variant(tmp_path / "old", unique="0c10002").parent
    new = write_variant(tmp_path / "new", unique="0c10003", version=2).parent
    commit = publish(old, open_registry(location), REPO).commit
    (tmp_path / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = 1\n')
    project_lock.lock(project_lock.read(tmp_path), open_registry(location))
    publish(new, open_registry(location), REPO)
    _server.cache_clear()
    assert len(commit) == 64
    assert lock.read(tmp_path / lock.FILE).of(REPO).commit == commit
    options = {"registry": location, "trust_remote_code": True}
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "another"))
    with requests_made() as made:
        kernel = kernforge.get_locked_kernel(REPO, lockfile=tmp_path / lock.FILE, **options)
    assert [url for url in made if "sha256:" not in url and "/token" not in url] == []
    assert kernel.ANSWER == 42
    assert kernforge.get_kernel(REPO, version=2, **options).name != kernel.name
