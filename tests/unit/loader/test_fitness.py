# SPDX-License-Identifier: Apache-2.0
import logging

import pytest
from support.kernels import CUDA_HOST

import kernforge
from kernforge.artifact.metadata import CLIENT_VERSION, GitState, Provenance
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
from kernforge.loader import fitness
from kernforge.loader.host import Host
from kernforge.publish.api import publish
from kernforge.system.digest import sha256

REPO = "owner/toy"


pytestmark = pytest.mark.usefixtures("machine")


def test_an_old_build_without_a_digest_loads_only_from_a_local_path(registry, build):
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


def test_python_dependencies_are_a_closed_list_and_must_be_installed(build, monkeypatch):
    with pytest.raises(RegistryError, match="uses the Python package 'requests'"):
        kernforge.get_local_kernel(build(python_depends=("requests",)))
    monkeypatch.setattr(fitness, "has_module", lambda name: name != "einops")
    with pytest.raises(UsageError, match="requires Python dependency `einops`") as caught:
        kernforge.get_local_kernel(build(python_depends=("einops",)))
    assert caught.value.hint == "pip install einops"
    assert kernforge.get_local_kernel(build(python_depends=("tvm-ffi",))).ANSWER == 42


def test_device_code_for_other_gpus_is_refused_unless_asked_for(
    registry, build, machine, monkeypatch
):
    machine[None] = CUDA_HOST
    monkeypatch.setattr(
        fitness,
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


def test_a_dirty_build_is_warned_of(build, caplog):
    state = GitState(commit="a" * 40, dirty=True)
    provenance = Provenance(builder_version="test", kernel=state)
    with caplog.at_level(logging.WARNING, logger="kernforge"):
        kernforge.get_local_kernel(build(provenance=provenance))
    assert "built from files that its recorded commit does not hold" in caplog.text


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
def test_what_this_process_lacks_is_reported_before_anything_runs(put, fields, kind, words):
    put(REPO, files={"__init__.py": "raise OSError"}, **fields)
    with pytest.raises(kind, match=words):
        kernforge.get_kernel(REPO, version=1)


def test_a_kernel_for_these_formats_loads(put):
    put(REPO, kernels_minver=CLIENT_VERSION)
    assert kernforge.get_kernel(REPO, version=1).ANSWER == 42


def test_an_old_driver_is_an_error_before_the_import(put, monkeypatch, registry):
    cuda = Host(
        cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)), driver=Version2(12, 8)
    )
    monkeypatch.setattr("kernforge.loader.search.probe_to_load", lambda _backend: cuda)
    monkeypatch.setattr(fitness, "with_device", lambda _: cuda)
    put(REPO, backend="cuda", files={"__init__.py": "raise OSError"})
    with pytest.raises(NoVariantError, match=r"driver for CUDA 13\.0 or newer, this one is for"):
        kernforge.get_kernel(REPO, version=1)
    assert not kernforge.has_kernel(REPO, version=1)
    assert kernforge.has_kernel(REPO, version=1, check_arch=False)
