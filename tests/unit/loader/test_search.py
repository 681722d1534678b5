# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest
from support.kernels import CUDA_HOST

import kernforge
from kernforge.errors import NoVariantError, RegistryError, UsageError
from kernforge.loader import search
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
    monkeypatch.setenv("LOCAL_KERNELS", f"a/b=/x:{REPO}={local}")
    assert kernforge.get_kernel(REPO, version=1).WHERE == "local"
    assert kernforge.has_kernel(REPO, version=9)
    monkeypatch.setenv("LOCAL_KERNELS", "nonsense")
    with pytest.raises(UsageError, match="Invalid LOCAL_KERNELS entry: 'nonsense'"):
        kernforge.get_kernel(REPO, version=1)


def test_last_override_of_a_kernel_applies(registry, build, monkeypatch):
    first, last = (build(files={"__init__.py": f"N = {n}"}) for n in (1, 2))
    both = search.with_override(f"{REPO}={first}", REPO, last)
    monkeypatch.setenv("LOCAL_KERNELS", both)
    assert kernforge.get_kernel(REPO, version=1).N == 2
    assert search.with_override(None, "a/b", Path("/x")) == "a/b=/x"


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
        commit, _ = registry.add_snapshot(repo_id, {"kernel-status.toml": sha256(text)})
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
