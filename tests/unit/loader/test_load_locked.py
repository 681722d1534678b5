# SPDX-License-Identifier: Apache-2.0
"""Kernels at the commits that a lock says, kernels that moved, and what is only fetched."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import kernforge
from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import (
    IntegrityError,
    MachineError,
    MissingPackageError,
    NoVariantError,
    RegistryError,
    RequestError,
)
from kernforge.loader import fitness
from kernforge.loader.facts import Host
from kernforge.loader.resolve import check_driver
from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry

REPO = "owner/locked"


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(tmp_path / "registry"))
    monkeypatch.delenv("LOCAL_KERNELS", raising=False)
    return DirectoryRegistry(tmp_path / "registry")


@pytest.fixture
def put(tmp_path, write_variant, registry, request):
    """A function that publishes a kernel and gives its commit."""
    count = iter(range(100))

    def publish_one(repo_id, version=None, **fields):
        number = next(count)
        unique = f"{request.node.name[5:30]}{number}".replace("-", "_").replace("[", "_")
        build = tmp_path / f"build-{number}"
        write_variant(build, variant="torch-universal", unique=unique, **fields)
        return publish(build, registry, repo_id, version).commit

    return publish_one


def lock(path, *kernels):
    entries = [
        {"dependency": {"repo-id": repo_id, "version": version}, "lock": {"commit": commit}}
        for repo_id, version, commit in kernels
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.parametrize("call", [kernforge.get_locked_kernel, kernforge.load_kernel])
def test_a_lock_decides_even_where_newer_versions_are(put, tmp_path, call, monkeypatch):
    name = call.__name__
    base = put("owner/base", "1.0.0", name=f"base-{name[0]}", files={"__init__.py": "V = 'old'"})
    package = {
        "__init__.py": "import kernforge\nbase = kernforge.get_kernel_dep('owner/base')\nV = 'old'\n"
    }
    old = put(REPO, "1.0.0", name=f"toy-{name[0]}", depends={"owner/base": 1}, files=package)
    for repo_id in ("owner/base", REPO):
        new = {"__init__.py": "V = 'new'\nbase = None\n"}
        put(repo_id, "1.1.0", name=f"new-{name[0]}", files=new)
    path = lock(tmp_path / "kernels.lock", (REPO, 1, old), ("owner/base", 1, base))
    monkeypatch.setenv("LOCAL_KERNELS", f"{REPO}={tmp_path}")
    kernel = call(REPO, lockfile=path)
    assert (kernel.V, kernel.base.V) == ("old", "old")
    monkeypatch.delenv("LOCAL_KERNELS")
    assert kernforge.get_kernel(REPO, version=1).V == "new"
    with pytest.raises(RequestError, match=r"owner/base \(version 1\) is not locked in"):
        call(REPO, lockfile=lock(tmp_path / "other.lock", (REPO, 1, old)))


def test_an_old_lock_loads_the_commit_that_it_says(put, tmp_path):
    old = put(REPO, "1.0.0", files={"__init__.py": "V = 'old'"})
    put(REPO, "1.1.0", files={"__init__.py": "V = 'new'"})
    path = tmp_path / "kernels.lock"
    path.write_text(json.dumps([{"repo_id": REPO, "sha": old, "variants": {}}]))
    assert kernforge.get_locked_kernel(REPO, lockfile=str(path)).V == "old"


def test_what_is_locked_but_not_there_is_told(put, tmp_path):
    put(REPO)
    path = lock(tmp_path / "kernels.lock", (REPO, 1, "a" * 40))
    with pytest.raises(RegistryError, match=r"is locked to commit a{40}, which registry") as caught:
        kernforge.load_kernel(REPO, lockfile=path)
    assert "kernforge download" in caught.value.hint
    with pytest.raises(RequestError, match="cannot be read: No such file"):
        kernforge.load_kernel(REPO, lockfile=tmp_path / "none")
    with pytest.raises(
        RequestError, match=r"brought no kernels\.lock with it|belongs to no module"
    ):
        kernforge.load_kernel(REPO)


APPLICATION = """
    import kernforge
    kernel = kernforge.load_kernel("owner/locked")
"""


@pytest.mark.parametrize(
    ("place", "how"), [("package", "-m"), ("nested", "import"), ("distribution", "import")]
)
def test_the_lock_of_the_calling_application_is_found(put, tmp_path, place, how):
    commit = put(REPO, files={"__init__.py": "print('loaded')"})
    app = tmp_path / "site/app/inner"
    app.mkdir(parents=True)
    (app.parent / "__init__.py").touch()
    (app / "__init__.py").touch()
    (app / "main.py").write_text(textwrap.dedent(APPLICATION))
    info = tmp_path / "site/the_app-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: the-app\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("app\n")
    where = {"package": app.parent, "nested": app, "distribution": info}[place]
    lock(where / "kernels.lock", (REPO, 1, commit))
    argv = ["-m", "app.inner.main"] if how == "-m" else ["-c", "import app.inner.main"]
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=tmp_path / "site",
        env={**os.environ, "PYTHONPATH": str(Path(kernforge.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("loaded\n", "")


def test_install_brings_and_verifies_but_imports_nothing(put, registry):
    put("owner/base", files={"__init__.py": "raise OSError"})
    commit = put(REPO, depends={"owner/base": 1}, files={"__init__.py": "raise OSError"})
    path = kernforge.install_kernel(REPO, version=1, local_files_only=True)
    assert path == registry.fetch(REPO, commit, "torch-universal")
    base = registry.fetch("owner/base", registry.ref("owner/base", "v1"), "torch-universal")
    (base / "more.py").touch()
    with pytest.raises(IntegrityError, match=r"extra: more\.py"):
        kernforge.install_kernel(REPO, version=1)


def move(registry, repo_id, text):
    """Publish a commit that only says where the kernel went."""
    from kernforge.system.digest import sha256  # noqa: PLC0415 - one use

    with registry.writing(repo_id):
        registry.add_blob(repo_id, sha256(text), text.encode())
        commit, _ = registry.add_snapshot(repo_id, {"kernel-status.toml": sha256(text)})
        registry.set_ref(repo_id, "v1", commit)


def test_a_kernel_that_moved_is_followed(put, registry, caplog):
    put("owner/new-home", files={"__init__.py": "V = 'moved'"})
    move(registry, REPO, 'kind = "redirect"\ndestination = "owner/new-home"\n')
    with caplog.at_level("WARNING", logger="kernforge"):
        assert kernforge.get_kernel(REPO, version=1).V == "moved"
    assert "kernel owner/locked moved to owner/new-home" in caplog.text
    move(registry, "owner/new-home", f'kind="redirect"\ndestination="{REPO}"\nrevision="v1"\n')
    move(registry, REPO, 'kind="redirect"\ndestination="owner/new-home"\nrevision="v1"\n')
    with pytest.raises(RegistryError, match="in a circle"):
        kernforge.get_kernel(REPO, version=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind = 'gone'", "of kind 'gone'"),
        ("", "of kind None"),
        ("kind = 'redirect'", "does not say where"),
        ("kind = 'redirect'\ndestination = 5", "does not say where"),
        ("kind =", "is not TOML"),
    ],
)
def test_a_status_that_cannot_be_read_is_told(registry, text, words):
    move(registry, REPO, text)
    with pytest.raises(RegistryError, match=words) as caught:
        kernforge.get_kernel(REPO, version=1)
    assert caught.value.message.startswith("owner/locked/kernel-status.toml")


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"kernels_minver": "0.18.0"}, MachineError, "needs the formats of kernels 0.18.0"),
        ({"python_depends": ("helion",)}, MissingPackageError, "needs the Python package helion"),
    ],
)
def test_what_this_process_lacks_is_told_before_anything_runs(put, fields, kind, words):
    put(REPO, files={"__init__.py": "raise OSError"}, **fields)
    with pytest.raises(kind, match=words):
        kernforge.get_kernel(REPO, version=1)


def test_a_kernel_for_these_formats_loads(put):
    put(REPO, kernels_minver=".".join(map(str, fitness.CLIENT)))
    assert kernforge.get_kernel(REPO, version=1).ANSWER == 42


@pytest.mark.parametrize(
    ("variant", "driver", "refused"),
    [
        ("torch-stable-abi210-cu130-x86_64-linux", Version2(12, 8), True),
        ("torch-stable-abi210-cu130-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu132-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu126-x86_64-linux", Version2(13, 0), False),
        ("torch-stable-abi210-cu130-x86_64-linux", None, False),
        ("torch-cuda", Version2(12, 8), True),
        ("some-folder", Version2(12, 8), False),
    ],
)
def test_a_driver_for_an_older_cuda_is_refused(variant, driver, refused):
    host = Host(cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)), driver=driver)
    assert bool(check_driver(variant, host)) is refused


def test_an_old_driver_is_an_error_before_the_import(put, monkeypatch, registry):
    cuda = Host(
        cpu="x86_64", os="linux", backend=Backend("cuda", Version2(13, 0)), driver=Version2(12, 8)
    )
    monkeypatch.setattr("kernforge.loader.search.probe", lambda _backend: cuda)
    monkeypatch.setattr(fitness, "with_device", lambda host: host)
    put(REPO, backend="cuda", files={"__init__.py": "raise OSError"})
    with pytest.raises(NoVariantError, match=r"driver for CUDA 13\.0 or newer, this one is for"):
        kernforge.get_kernel(REPO, version=1)
    assert not kernforge.has_kernel(REPO, version=1)
    assert kernforge.has_kernel(REPO, version=1, check_arch=False)
