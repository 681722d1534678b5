# SPDX-License-Identifier: Apache-2.0
"""The hub's own tools and ours, over a hub or a directory: each loads what the other published."""

import json
import os
import tarfile
from pathlib import Path

import pytest
from support.hub_server import WRITER

from kernforge.publish.api import publish
from kernforge.registry.directory import DirectoryRegistry
from kernforge.system import files

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("kernels")

REPO = "famous/shift-relu"
FILES = {
    "__init__.py": "from .shift import shift_relu\nfrom . import deep\n",
    "shift.py": "import torch\n\n\ndef shift_relu(x, s):\n    return torch.clamp(x + s, min=0.0)\n",
    "deep/__init__.py": "",
    "weights.bin": "x" * 100_000,
}
USE = "print(kernel.shift_relu(__import__('torch').tensor([-2.0, 0.5]), 1.0).tolist())"
GET = f"kernel = kernels.get_kernel({REPO!r}, version=1, backend='cpu')\n{USE}"
THEIRS = f"import kernels\n{GET}"
OURS = f"import kernforge as kernels\n{GET}"
PUBLISH = f"""
import pathlib, sys
from kernforge.publish.api import publish
from kernforge.registry import open_registry

branch = sys.argv[2] if len(sys.argv) > 2 else None
publish(pathlib.Path(sys.argv[1]), open_registry("hf://"), {REPO!r}, branch=branch, card="# shift")
"""
UPLOAD = f"""
import sys
from huggingface_hub import HfApi

api = HfApi()
api.create_repo({REPO!r}, repo_type="kernel", exist_ok=True)
api.create_branch({REPO!r}, branch="v1", repo_type="kernel", exist_ok=True)
api.upload_folder(repo_id={REPO!r}, repo_type="kernel", revision="v1", folder_path=sys.argv[1],
                  path_in_repo="build")
"""


@pytest.fixture
def built(tmp_path, write_variant):
    """Two variants of a kernel in pure Python, as a build lays them out."""
    for backend in ("cpu", "cuda"):
        variant = {"variant": f"torch-{backend}", "backend": backend}
        write_variant(tmp_path / "build", name="shift-relu", files=FILES, **variant)
    return tmp_path / "build"


@pytest.fixture
def run(hub, tmp_path, forked):
    """Run a program in a fresh process that knows the hub and nothing else."""
    hub.publishers.add("famous")

    def start(program, *arguments, home="a", expect=0, **environ):
        environ = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": tmp_path / home / "hf",
            "HF_HUB_DISABLE_XET": "1",
            "KERNFORGE_HOME": tmp_path / home / "kernforge",
            "HF_TOKEN": WRITER,
            "PYTHONPATH": Path(__file__).parents[2] / "src",
            **environ,
        }
        own = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "KERN"))}
        return forked("-c", program, *arguments, env=own, expect=expect, **environ)

    return start


def assert_used(done):
    assert json.loads(done.stdout.splitlines()[-1]) == [0.0, 1.5]


def test_the_hubs_client_loads_our_publication(hub, run, built):
    run(PUBLISH, built)
    hub.counted()
    assert_used(run(THEIRS))
    theirs = hub.counted()
    assert_used(run(OURS, home="b"))
    ours = hub.counted()
    # Whether the owner is trusted, the references, the listing; and each file that is not empty.
    assert ours == {
        "GET overview": 1,
        "GET refs": 1,
        "GET tree": 1,
        "GET resolve": 4,
        "GET cdn": 1,
    }
    assert theirs.total() > 1.5 * ours.total()


def test_both_clients_load_a_branch(hub, run, built):
    run(PUBLISH, built, "dev")
    assert sorted(hub.repos[REPO].branches) == ["dev", "main"]
    for program in (THEIRS, OURS):
        assert_used(run(program.replace("version=1", "revision='dev'")))
        run(program, expect=1)  # a branch is not a version


def test_we_load_an_upload_of_huggingface_hub(hub, run, built):
    run(UPLOAD, built)
    assert_used(run(OURS))
    hub.counted()
    assert_used(run(OURS, KERNFORGE_REGISTRY="hf://"))
    assert hub.counted() == {"GET overview": 1, "GET refs": 1}, "all the rest is in the cache"


def test_one_cache_serves_both_clients_offline(hub, run, built):
    run(PUBLISH, built)
    assert_used(run(OURS))
    assert_used(run(OURS, HF_HUB_OFFLINE="1"))
    assert_used(run(THEIRS, HF_HUB_OFFLINE="1"))
    hub.counted()
    assert_used(run(THEIRS))
    assert "GET cdn" not in hub.counted(), "the hub's client takes our blobs for its own"
    assert_used(run(THEIRS, home="c"))
    hub.counted()
    assert_used(run(OURS, home="c"))
    assert hub.counted() == {"GET overview": 1, "GET refs": 1, "GET tree": 1}


# -- over a directory --------------------------------------------------------------------------


def of_directory(root):
    """Where both clients find a registry in a directory."""
    return {"KERNELS_CACHE": root, "KERNFORGE_REGISTRY": root, "HF_HUB_OFFLINE": "1"}


@pytest.mark.road
def test_both_clients_load_a_directory(built, tmp_path, run):
    root = str(tmp_path / "registry")
    done = publish(built, DirectoryRegistry(Path(root)), REPO, card="# shift\n")
    by_commit = THEIRS.replace("version=1", f"revision={done.commit!r}")
    # The hub's client leaves bytecode behind; it is no reason to refuse the kernel.
    for program in (THEIRS, by_commit, OURS.replace("=1", "='~=1.0'")):
        assert_used(run(program, PYTHONDONTWRITEBYTECODE="", **of_directory(root)))


LOCKED = f"""
import pathlib, sys
from {{client}} import load_kernel
kernel = load_kernel({REPO!r}, lockfile=pathlib.Path(sys.argv[1]), backend="cpu")
{USE}
"""


@pytest.mark.road
def test_both_clients_load_a_locked_download(built, tmp_path, run, kernforge_cli):
    registry, cache, app = (tmp_path / name for name in ("registry", "cache", "app"))
    publish(built, DirectoryRegistry(registry), REPO)
    app.mkdir()
    (app / "pyproject.toml").write_text(f'[tool.kernels.dependencies]\n"{REPO}" = "~=1.0"\n')
    kernforge_cli("lock", app, "--registry", registry)
    out = ("--to", tmp_path / "kernels.tar", "--platform", "torch2.11-cpu-x86_64-linux")
    kernforge_cli("get", app, "--registry", registry, *out)
    files.remove_tree(registry)
    with tarfile.open(tmp_path / "kernels.tar") as archive:
        archive.extractall(cache, filter="data")
    for client in ("kernels", "kernforge"):
        program = LOCKED.format(client=client)
        assert_used(run(program, app / "kernels.lock", **of_directory(str(cache))))
    asked = ("get", REPO, "--version", "~=1.0", "--backend", "cpu", "--registry", cache)
    found = kernforge_cli(*asked).stdout.strip()
    assert (Path(found) / "metadata.json").is_file()
