# SPDX-License-Identifier: Apache-2.0
"""What a loader may expect of a registry, asked of each kind."""

import contextlib
import hashlib
import shutil

import pytest
from support.memory_transport import MemoryTransport
from support.registries import commit_of
from support.served import served

from kernforge.errors import RegistryError
from kernforge.publish.api import destination
from kernforge.publish.destination import Release
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubEndpoint, HubRegistry
from kernforge.registry.remote import RemoteRegistry
from kernforge.registry.static import StaticTransport
from kernforge.system import files

REPO = "owner/toy"
FILES = {
    "build/torch-cpu/metadata.json": b'{"name": "toy"}',
    "build/torch-cpu/metadata.json.sigstore": b"signed",
    "build/torch-cpu/deep/er.py": b"x = 1\n",
    "build/torch-cpu/toy.so": bytes(range(256)) * 400,
    "source/build.toml": b"",
}


def directory(tmp_path, _fixture):
    registry = DirectoryRegistry(tmp_path / "registry")
    digests = {path: hashlib.sha256(data).hexdigest() for path, data in FILES.items()}
    with registry.writing(REPO):
        for path, data in FILES.items():
            registry.add_blob(REPO, digests[path], data)
        commit = registry.add_snapshot(REPO, digests)
        for name in ("v1", "v1.2.0"):
            registry.set_ref(REPO, name, commit)
        registry.write_index(REPO, commit)
    return registry


def hub(tmp_path, fixture):
    server = fixture("hub")
    commit = server.add(REPO, "v1", FILES)
    server.repos[REPO].tags["v1.2.0"] = commit
    return HubRegistry(HubEndpoint(url=server.url, cache=tmp_path / "cache"))


def written(registry, tmp_path):
    for path, data in FILES.items():
        files.write_new(tmp_path / "files" / path, data)
    tree = {path: hashlib.sha256(data).hexdigest() for path, data in FILES.items()}
    local = {digest: tmp_path / "files" / path for path, digest in tree.items()}
    release = Release(branch="v1", version=(1, 2, 0), tree=tree, files=local, card=None)
    destination(registry).write(REPO, release)
    return registry


def objects(tmp_path, fixture):
    return written(open_registry(fixture("bucket")), tmp_path)


def oci(tmp_path, fixture):
    return written(open_registry(fixture("oci_registry")()), tmp_path)


def oci_with_tokens(tmp_path, fixture):
    return written(open_registry(fixture("oci_registry")(tokens=True)), tmp_path)


def memory(tmp_path, _fixture):
    transport = MemoryTransport({REPO: FILES}, {"v1", "v1.2.0"})
    return RemoteRegistry(transport, "memory://here", tmp_path / "cache")


def static(tmp_path, fixture):
    shutil.copytree(directory(tmp_path, fixture).root, tmp_path / "www")  # it follows links
    server = fixture("web_server")(tmp_path / "www")
    transport = StaticTransport(server.url, tmp_path / "netrc")
    return RemoteRegistry(transport, server.url, tmp_path / "cache")


def serve(tmp_path, fixture):
    root = directory(tmp_path, fixture).root
    server = fixture("enter")(served(root, tmp_path / "log"))
    return HubRegistry(HubEndpoint(url=server.url, cache=tmp_path / "cache"))


@pytest.fixture
def enter():
    with contextlib.ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture(params=[directory, hub, memory, static, objects, serve, oci, oci_with_tokens])
def registry(request, tmp_path):
    return request.param(tmp_path, request.getfixturevalue)


def test_published_variant_is_fetched(registry):
    commit = commit_of(registry, REPO, 1)
    assert (
        commit_of(registry, REPO, "~=1.1")
        == commit_of(registry, REPO, revision=commit[:8])
        == commit
    )
    assert {"v1", "v1.2.0"} <= set(registry.refs(REPO))
    assert commit in registry.commits(REPO)
    assert registry.has_commit(REPO, commit)
    assert registry.variants(REPO, commit) == ("torch-cpu",)
    assert registry.metadata(REPO, commit, "torch-cpu") == FILES["build/torch-cpu/metadata.json"]
    assert registry.small_file(REPO, commit, "build/torch-cpu/metadata.json.sigstore") == b"signed"
    path = registry.fetch(REPO, commit, "torch-cpu")
    got = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert {f"build/torch-cpu/{name}": data for name, data in got.items()} == {
        name: data for name, data in FILES.items() if name.startswith("build/")
    }
    root = registry.link_root(REPO).resolve()
    assert all(p.resolve().is_relative_to(root) for p in path.rglob("*"))
    assert (registry.folder(REPO, commit, "source") / "build.toml").is_file()


def test_unpublished_names_are_absent(registry):
    commit = commit_of(registry, REPO, 1)
    assert commit_of(registry, REPO, 2) is None
    assert not registry.has_commit(REPO, "0" * 40)
    assert registry.small_file(REPO, commit, "build/torch-cpu/other") is None
    assert registry.folder(REPO, commit, "benchmarks") is None
    with pytest.raises(RegistryError, match="is missing at"):
        registry.metadata(REPO, commit, "torch-cuda")
    with pytest.raises(RegistryError, match="is missing at"):
        registry.fetch(REPO, commit, "torch-cuda")
