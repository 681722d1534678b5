# SPDX-License-Identifier: Apache-2.0
import pytest
from support.commands import call
from support.kernels import CPU_HOST

from kernforge.audit import describe
from kernforge.trust import admission


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    monkeypatch.setattr(admission, "SITE", tmp_path / "no-policy.toml")
    monkeypatch.setattr(describe, "probe_to_load", lambda: CPU_HOST)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.delenv("KERNFORGE_TRUST", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def build(tmp_path, write_variant):
    """A build of two variants, one of which this machine would load."""
    for name, backend in (("torch-cpu", "cpu"), ("torch-cuda", "cuda")):
        write_variant(tmp_path / "build", variant=name, backend=backend)
    return tmp_path / "build"


@pytest.fixture
def key(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_SIGN_PASSPHRASE", "some words")
    assert call("sign", "--new-key", tmp_path / "acme.key") == 0
    return tmp_path / "acme.key"
