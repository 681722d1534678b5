# SPDX-License-Identifier: Apache-2.0
import logging
from pathlib import Path

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


def test_local_kernel_loads_from_project_build_or_variant(tmp_path, write_variant):
    variant = write_variant(tmp_path / "project/build", unique="loc0001")
    modules = {
        kernforge.get_local_kernel(path)
        for path in (tmp_path / "project", tmp_path / "project/build", variant, str(variant))
    }
    assert len(modules) == 1
    with pytest.raises(NoVariantError, match="nothing: there is no such directory"):
        kernforge.get_local_kernel(tmp_path / "nothing")


def test_version_with_a_build_that_fits_is_named(registry, build):
    publish(build(), registry, REPO)
    publish(build(variant="torch212-cxx11-cpu-x86_64-linux", version=2), registry, REPO)
    with pytest.raises(NoVariantError) as refused:
        kernforge.get_kernel(REPO, version=2, trust_remote_code=True)
    assert "version 1 has a build that fits" in refused.value.hint


def test_named_variant_must_fit(build, machine):
    directory = build(variant="torch212-cxx11-cpu-x86_64-linux")
    with pytest.raises(NoVariantError, match=r"needs torch 2\.12, torch is 2\.13"):
        kernforge.get_local_kernel(directory / "torch212-cxx11-cpu-x86_64-linux")
    machine[None] = CUDA_HOST
    assert kernforge.get_local_kernel(build() / "torch-cpu").ANSWER == 42


def test_named_noarch_variant_of_another_backend_loads(build, caplog):
    directory = build(variant="torch-cuda", backend="cuda")
    assert kernforge.get_local_kernel(directory / "torch-cuda").ANSWER == 42
    assert "torch-cuda is loaded: it is for cuda, kernels are wanted for cpu" in caplog.text
    with pytest.raises(NoVariantError):
        kernforge.get_local_kernel(directory)


def test_snapshot_loads_as_a_local_kernel(registry, build):
    commit = publish(build(), registry, REPO).commit
    assert kernforge.get_local_kernel(registry.snapshot(REPO, commit)).ANSWER == 42


def test_local_kernels_override_the_registry(registry, build, monkeypatch):
    publish(build(files={"__init__.py": "WHERE = 'registry'"}), registry, REPO)
    local = build(files={"__init__.py": "WHERE = 'local'"})
    other = build(files={"__init__.py": "WHERE = 'other'"})
    assert search.with_override(None, "a/b", Path("/x")) == "a/b=/x"
    both = search.with_override(f"a/b=/x:{REPO}={other}", REPO, local)
    monkeypatch.setenv("LOCAL_KERNELS", both)  # the last one applies
    assert kernforge.get_kernel(REPO, version=1).WHERE == "local"
    assert kernforge.has_kernel(REPO, version=9)
    monkeypatch.setenv("LOCAL_KERNELS", "nonsense")
    with pytest.raises(UsageError, match="Invalid LOCAL_KERNELS entry: 'nonsense'"):
        kernforge.get_kernel(REPO, version=1)


def test_cyclic_dependency_is_refused(registry, build):
    publish(build(name="one", depends={"owner/two": 1}), registry, "owner/one")
    publish(build(name="two", depends={"owner/one": 1}), registry, "owner/two")
    circle = r"owner/one at (\w+) -> owner/two at \w+ -> owner/one at \1"
    with pytest.raises(RegistryError, match=circle):
        kernforge.get_kernel("owner/one", version=1)


def move(registry, repo_id, text):
    """Publish a commit that only says where the kernel went."""

    with registry.writing(repo_id):
        registry.add_blob(repo_id, sha256(text), text.encode())
        commit = registry.add_snapshot(repo_id, {"kernel-status.toml": sha256(text)})
        registry.set_ref(repo_id, "v1", commit)


def test_redirect_is_followed(put, registry, caplog):
    put("owner/new-home", files={"__init__.py": "V = 'moved'"})
    move(registry, REPO, 'kind = "redirect"\ndestination = "owner/new-home"\n')
    with caplog.at_level("WARNING", logger="kernforge"):
        assert kernforge.get_kernel(REPO, version=1).V == "moved"
    assert "kernel owner/toy moved to owner/new-home" in caplog.text
    move(registry, "owner/new-home", f'kind="redirect"\ndestination="{REPO}"\nrevision="v1"\n')
    move(registry, REPO, 'kind="redirect"\ndestination="owner/new-home"\nrevision="v1"\n')
    with pytest.raises(RegistryError, match="Cyclic kernel dependency"):
        kernforge.get_kernel(REPO, version=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind = 'gone'", "of kind 'gone'"),
        ("", "does not name the kernel"),
        ("kind = 'redirect'", "does not name the kernel"),
        ("kind = 'redirect'\ndestination = 5", "does not name the kernel"),
        ("kind =", "does not name the kernel"),
    ],
)
def test_malformed_redirect_is_an_error(registry, text, words):
    move(registry, REPO, text)
    with pytest.raises(RegistryError, match=words) as caught:
        kernforge.get_kernel(REPO, version=1)
    assert caught.value.message.startswith("owner/toy/kernel-status.toml")


# -- whether a variant fits this machine -------------------------------------------------------


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
        commit = registry.add_snapshot(REPO, tree)
        registry.set_ref(REPO, "v1", commit)
    with pytest.raises(IntegrityError, match="has no digest") as caught:
        kernforge.get_kernel(REPO, version=1)
    assert "get_local_kernel" in caught.value.hint


def test_missing_requirement_is_an_error_before_import(build, monkeypatch):
    with pytest.raises(RegistryError, match="uses the Python package 'requests'"):
        kernforge.get_local_kernel(build(python_depends=("requests",)))
    monkeypatch.setattr(search, "has_module", lambda name: name != "einops")
    raises = {"__init__.py": "raise OSError"}
    with pytest.raises(MissingPackageError, match="requires Python dependency `einops`") as caught:
        kernforge.get_local_kernel(build(python_depends=("einops",), files=raises))
    assert caught.value.hint == "pip install einops"
    with pytest.raises(MachineError, match=r"requires kernels>=0\.19\.0, .* version 0\.18\.2"):
        kernforge.get_local_kernel(build(kernels_minver="0.19.0", files=raises))
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
