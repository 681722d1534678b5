# SPDX-License-Identifier: Apache-2.0
import logging

import pytest
from support.kernels import CUDA_HOST

import kernforge
from kernforge.artifact.metadata import GitState, Provenance
from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import (
    IntegrityError,
    MachineError,
    MissingPackageError,
    NoVariantError,
    RegistryError,
    UsageError,
)
from kernforge.loader import search
from kernforge.loader.host import Host
from kernforge.publish.api import publish
from kernforge.system.digest import sha256

REPO = "owner/toy"


pytestmark = pytest.mark.usefixtures("machine")


def test_build_without_a_digest_loads_only_locally(registry, build):
    directory = build(digest=False)
    assert kernforge.get_local_kernel(directory).ANSWER == 42
    tree = {}
    with registry.writing(REPO):
        for file in (directory / "torch-cpu").iterdir():
            data = file.read_bytes()
            digest = sha256(data)
            registry.add_blob(REPO, digest, data)
            tree[f"build/torch-cpu/{file.name}"] = digest
        commit, _ = registry.add_snapshot(REPO, tree)
        registry.set_ref(REPO, "v1", commit)
    with pytest.raises(IntegrityError, match="has no digest") as caught:
        kernforge.get_kernel(REPO, version=1)
    assert "get_local_kernel" in caught.value.hint


def test_python_dependencies_are_known_and_installed(build, monkeypatch):
    with pytest.raises(RegistryError, match="uses the Python package 'requests'"):
        kernforge.get_local_kernel(build(python_depends=("requests",)))
    monkeypatch.setattr(search, "has_module", lambda name: name != "einops")
    with pytest.raises(UsageError, match="requires Python dependency `einops`") as caught:
        kernforge.get_local_kernel(build(python_depends=("einops",)))
    assert caught.value.hint == "pip install einops"
    assert kernforge.get_local_kernel(build(python_depends=("tvm-ffi",))).ANSWER == 42


def test_device_code_for_other_gpus_is_refused_by_default(registry, build, machine, monkeypatch):
    machine[None] = CUDA_HOST
    monkeypatch.setattr(
        search,
        "with_device",
        lambda _: Host(cpu="", os="", backend=Backend("cuda"), capability=Version2(7, 0)),
    )
    built = build(variant="torch-cuda", backend="cuda", archs=("8.0", "9.0a"))
    publish(built, registry, REPO)
    with pytest.raises(NoVariantError, match=r"8\.0, 9\.0a, the device has CUDA capability 7\.0"):
        kernforge.get_kernel(REPO, version=1)
    assert not kernforge.has_kernel(REPO, version=1)
    assert kernforge.has_kernel(REPO, version=1, check_arch=False)
    assert kernforge.get_kernel(REPO, version=1, check_arch=False).ANSWER == 42


def test_dirty_build_logs_a_warning(build, caplog):
    state = GitState(commit="a" * 40, dirty=True)
    provenance = Provenance(builder_version="test", kernel=state)
    with caplog.at_level(logging.WARNING, logger="kernforge"):
        kernforge.get_local_kernel(build(provenance=provenance))
    assert "was built from a dirty checkout" in caplog.text


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"kernels_minver": "0.19.0"}, MachineError, "requires kernels>=0.19.0, .* version 0.18.2"),
        (
            {"python_depends": ("helion",)},
            MissingPackageError,
            "requires Python dependency `helion`",
        ),
    ],
)
def test_missing_requirement_is_an_error_before_import(put, fields, kind, words):
    put(REPO, files={"__init__.py": "raise OSError"}, **fields)
    with pytest.raises(kind, match=words):
        kernforge.get_kernel(REPO, version=1)


def test_old_driver_is_an_error_before_import(put, monkeypatch, registry):
    cuda = Host(
        cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)), driver=Version2(12, 8)
    )
    monkeypatch.setattr("kernforge.loader.search.probe_to_load", lambda _backend: cuda)
    monkeypatch.setattr(search, "with_device", lambda _: cuda)
    put(REPO, backend="cuda", files={"__init__.py": "raise OSError"})
    with pytest.raises(NoVariantError, match=r"driver for CUDA 13\.0 or newer, this one is for"):
        kernforge.get_kernel(REPO, version=1)
    assert not kernforge.has_kernel(REPO, version=1)
    assert kernforge.has_kernel(REPO, version=1, check_arch=False)
