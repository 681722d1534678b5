# SPDX-License-Identifier: Apache-2.0
"""Hashes of locks of ``kernels`` 0.16 and before, computed here as that client did."""

import hashlib
import json

import pytest

import kernforge
from kernforge.application import download
from kernforge.errors import IntegrityError
from kernforge.loader.kernels_lock import KernelLocks
from kernforge.loader.search import Search
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.hub_endpoint import HubEndpoint
from kernforge.system.environment import Environment

REPO = "owner/toy"


@pytest.fixture
def locked(hub, tmp_path, write_variant):
    """A kernel on a hub, and the lock that the old client would have written of it."""
    write_variant(
        tmp_path / "build",
        files={
            "__init__.py": "V = 1\n",
            "deep/a.py": "",
            "deep.py": "x = 1\n",
            "_toy.abi3.so": "elf",
        },
        digest=True,
    )
    files = {
        p.relative_to(tmp_path).as_posix(): p.read_bytes()
        for p in (tmp_path / "build").rglob("*")
        if p.is_file()
    }
    commit = hub.add(REPO, "v1", files)
    parts = {}
    for path, blob in hub.repos[REPO].commits[commit].items():
        if path.startswith("build/torch"):
            inner = path.split("/", 2)[2].encode()
            parts[inner] = bytes.fromhex(blob.sha256 if blob.large else blob.git)
    said = hashlib.sha256(b"".join(path + parts[path] for path in sorted(parts))).hexdigest()
    return [
        {
            "repo_id": REPO,
            "sha": commit,
            "variants": {"torch-cpu": {"hash": f"sha256-{said}", "hash_type": "git_lfs_concat"}},
        }
    ]


@pytest.fixture
def registry(hub, tmp_path):
    return HubRegistry(
        HubEndpoint(url=hub.url, cache=tmp_path / "cache", offline=False, own_token=True)
    )


def load(lock, registry):
    return kernforge.get_locked_kernel(
        REPO,
        lockfile=KernelLocks.from_json(json.dumps(lock)),
        registry=registry,
        trust_remote_code=True,
    )


def test_what_was_locked_is_loaded_from_a_hub_and_from_a_copy(locked, registry, tmp_path):
    assert load(locked, registry).V == 1
    locks = KernelLocks.from_json(json.dumps(locked))
    source = Search(registry, None, Environment.read(), True, locks=locks)
    copied = DirectoryRegistry(tmp_path / "copied")
    for one in download.fetch(
        source, download.asked_kernels(locks), download.Selection(names=("torch-cpu",))
    ):
        assert download.copy(one, copied)
    assert load(locked, copied).V == 1


def test_other_bytes_are_refused(locked, registry):
    locked[0]["variants"]["torch-cpu"]["hash"] = "sha256-" + "0" * 64
    with pytest.raises(IntegrityError, match=r"is not what kernels\.lock locked"):
        load(locked, registry)
    locks = KernelLocks.from_json(json.dumps(locked))
    source = Search(registry, None, Environment.read(), True, locks=locks)
    with pytest.raises(IntegrityError, match="another hash"):
        list(download.fetch(source, download.asked_kernels(locks), download.Selection()))


def test_a_variant_that_was_not_there_is_refused(locked, registry):
    locked[0]["variants"] = {"torch-cuda": locked[0]["variants"].pop("torch-cpu")}
    with pytest.raises(IntegrityError, match="did not exist when"):
        load(locked, registry)
