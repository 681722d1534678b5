# SPDX-License-Identifier: Apache-2.0
"""The hub's own client loads our publication, and we load from its cache."""

import hashlib
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("kernels")

REPO = "kernforge/shift-relu"
OPS = """
import torch

ops = torch.ops._shift_relu_cpu_0123456


def add_op_namespace_prefix(op_name: str) -> str:
    return f"_shift_relu_cpu_0123456::{op_name}"
"""
INIT = """
import torch

from ._ops import add_op_namespace_prefix, ops


@torch.library.custom_op(add_op_namespace_prefix("shift_relu"), mutates_args=())
def _shift_relu(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch.clamp(x + shift, min=0.0)


@_shift_relu.register_fake
def _(x: torch.Tensor, shift: float) -> torch.Tensor:
    return torch.empty_like(x)


def shift_relu(x: torch.Tensor, shift: float = 0.0) -> torch.Tensor:
    return ops.shift_relu(x, shift)
"""
USE = """
import json, sys
import torch
{load}
x = torch.tensor([-2.0, -0.5, 1.0])
y = kernel.shift_relu(x, 1.0)
print(json.dumps([y.tolist(), kernel.__name__, kernel.__file__]))
"""
# On a machine without a GPU a torch for CUDA makes the client look for CUDA variants alone.
THEIRS = """
from kernels import get_kernel
kernel = get_kernel({repo!r}, {asked}, backend="cpu")"""
OURS = "from kernforge import get_kernel\nkernel = get_kernel({repo!r}, {asked}, registry={root!r})"


@pytest.fixture
def built(tmp_path, write_variant):
    """A build directory with a real kernel in pure Python."""
    files = {"__init__.py": INIT, "_ops.py": OPS}
    write_variant(tmp_path / "build", name="shift-relu", unique="0123456", files=files)
    return tmp_path / "build"


@pytest.fixture
def run(fork_server):
    """A function that uses the kernel in a process that has nothing but a cache."""

    def call(load, root, asked="version=1", environment=None):
        program = USE.format(load=load.format(repo=REPO, asked=asked, root=str(root)))
        environment = {
            **os.environ,
            **(environment or {}),
            "HF_HUB_OFFLINE": "1",
            "KERNELS_CACHE": str(root),
            "HF_HOME": str(root.parent / "hf-home"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        environment.pop("LOCAL_KERNELS", None)
        return fork_server.run([sys.executable, "-c", program], env=environment)

    return call


def assert_used(done, root):
    assert done.returncode == 0, done.stderr
    y, name, file = json.loads(done.stdout.splitlines()[-1])
    assert (y, name) == ([0.0, 0.5, 2.0], "_shift_relu_cpu_0123456")
    assert Path(file).is_relative_to(root)


@pytest.mark.road
def test_the_hubs_client_loads_our_publication(built, tmp_path, run):
    registry = DirectoryRegistry(tmp_path / "registry")
    result = publish(built, registry, REPO, card="# shift-relu\n")
    assert_used(run(THEIRS, registry.root), registry.root)
    by_commit = run(THEIRS, registry.root, f"revision={result.commit!r}")
    assert_used(by_commit, registry.root)
    # The hub's client leaves bytecode behind; it is no reason to refuse the kernel.
    assert_used(run(OURS, registry.root, "version='~=1.0'"), registry.root)


LOCKED = """
import pathlib
from {client} import load_kernel
kernel = load_kernel({{repo!r}}, lockfile=pathlib.Path({lock!r}), backend="cpu")"""


@pytest.mark.road
def test_both_clients_load_a_locked_download(built, tmp_path, run, kernforge_cli):
    registry = tmp_path / "registry"
    publish(built, DirectoryRegistry(registry), REPO)
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = "~=1.0"\n')
    kernforge_cli("lock", app, "--registry", registry)
    out = tmp_path / "kernels.tar"
    platform = ("--platform", "torch2.11-cpu-x86_64-linux")
    kernforge_cli("get", app, "--registry", registry, "--to", out, *platform)
    files.remove_tree(registry)
    cache = tmp_path / "cache"
    with tarfile.open(out) as archive:
        archive.extractall(cache, filter="data")
    place = {"KERNFORGE_REGISTRY": str(cache)}
    for client in ("kernels", "kernforge"):
        load = LOCKED.format(client=client, lock=str(app / "kernels.lock"))
        assert_used(run(load, cache, environment=place), cache)
    asked = ("get", REPO, "--version", "~=1.0", "--backend", "cpu", "--registry", cache)
    found = kernforge_cli(*asked).stdout.strip()
    assert (Path(found) / "metadata.json").is_file()


def git_blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's name


@pytest.fixture
def hub_cache(built, tmp_path):
    """A cache as ``huggingface_hub`` fills it: blobs by their git id, a snapshot of links."""
    from huggingface_hub.file_download import (  # noqa: PLC0415 - skipped without it
        _create_symlink,
        repo_folder_name,
    )

    root = tmp_path / "hub"
    repo = root / repo_folder_name(repo_id=REPO, repo_type="kernel")
    commit = "5" * 40
    for file in sorted((built / "torch-cpu").iterdir()):
        blob = repo / "blobs" / git_blob(file.read_bytes())
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(file.read_bytes())
        link = repo / "snapshots" / commit / "build/torch-cpu" / file.name
        link.parent.mkdir(parents=True, exist_ok=True)
        _create_symlink(str(blob), str(link), new_blob=True)
    (repo / "refs").mkdir()
    (repo / "refs/v1").write_text(commit)
    return root


def test_we_load_from_the_hubs_cache(hub_cache, run):
    assert_used(run(OURS, hub_cache), hub_cache)
    assert not list(hub_cache.rglob("*.pyc"))
    assert_used(run(THEIRS, hub_cache), hub_cache)


def test_we_refuse_a_modified_cache(hub_cache, run):
    variant = next(hub_cache.glob("*/snapshots/*/build/torch-cpu"))
    (variant / "_ops.py").resolve().write_text("0")
    done = run(OURS, hub_cache)
    assert done.returncode == 1
    assert "IntegrityError" in done.stderr
    assert "changed: _ops.py" in done.stderr
