# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.audit import describe
from kernforge.cli import main
from kernforge.loader.host import Host
from kernforge.trust import admission

HOST = Host(cpu="x86_64", os="linux", backend=Backend("cpu"), torch=Version2(2, 13), cxx11=True)


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    monkeypatch.setattr(admission, "SITE", tmp_path / "no-policy.toml")
    monkeypatch.setattr(describe, "probe_to_load", lambda: HOST)
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
    with pytest.raises(SystemExit) as ended:
        main.main(["sign", "--new-key", str(tmp_path / "acme.key")])
    assert ended.value.code == 0
    return tmp_path / "acme.key"
