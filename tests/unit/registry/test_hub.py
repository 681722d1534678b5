# SPDX-License-Identifier: Apache-2.0
import base64
import os
import sys
from pathlib import Path

import pytest
from support import bad_server
from support.hub_server import READER, HubServer
from support.registries import commit_of
from support.variants import contents

from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    StorageError,
)
from kernforge.registry.api import open_registry
from kernforge.registry.directory import Registry
from kernforge.registry.hub import HubEndpoint, HubRegistry, HubTransport
from kernforge.system.environment import Environment

REPO = "owner/toy"


LIBRARY = bytes(range(256)) * 4000


FILES = {
    "build/torch-cpu/metadata.json": b'{"name": "toy"}',
    "build/torch-cpu/metadata.json.sigstore": b"signed",
    "build/torch-cpu/__init__.py": b"",
    "build/torch-cpu/deep/er.py": b"x = 1\n",
    "build/torch-cpu/toy.so": LIBRARY,
    "build/torch-cpu/__pycache__/er.pyc": b"never",
    "build/torch-cuda/metadata.json": b'{"name": "toy", "backend": "cuda"}',
    "build/torch-cuda/deep/er.py": b"x = 1\n",
    "README.md": b"# toy",
}


@pytest.fixture
def commit(hub):
    return hub.add(REPO, "v1", FILES)


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def opened(hub: HubServer, cache: Path, monkeypatch):
    """A registry as a fresh process would open it."""

    def open_hub(*, offline: bool = False) -> Registry:
        registry = HubRegistry(HubEndpoint(url=hub.url, cache=cache))
        return registry.offline() if offline else registry

    return open_hub


def load(registry):
    return registry.fetch(REPO, commit_of(registry, REPO, 1), "torch-cpu")


def expected(variant):
    return {
        path: data
        for path, data in FILES.items()
        if path.startswith(f"build/{variant}/") and not path.endswith(".pyc")
    }


def test_warm_load_by_commit_makes_no_request(hub, opened, commit):
    opened().fetch(REPO, commit, "torch-cpu")
    hub.counted()
    registry = opened()
    assert registry.fetch(REPO, commit_of(registry, REPO, revision=commit), "torch-cpu").is_dir()
    assert registry.metadata(REPO, commit, "torch-cpu")
    assert hub.counted() == {}


def test_version_keeps_its_commit_in_a_process(hub, opened, commit, monkeypatch):
    registry = opened()
    assert commit_of(registry, REPO, 1) == commit
    hub.add(REPO, "v1", {"new": b""})
    hub.add(REPO, "v2", {"new": b""})
    monkeypatch.setattr("kernforge.registry.remote._REFS_LAST_S", 0.0)
    assert commit_of(registry, REPO, 2), "what was not there is requested again"
    assert commit_of(registry, REPO, 1) == commit


def test_listing_of_many_pages_is_complete(hub, opened):
    hub.page = 7
    files = {f"build/torch-cpu/{n}.py": b"%d" % n for n in range(40)}
    commit = hub.add(REPO, "v1", files)
    assert len(contents(opened().fetch(REPO, commit, "torch-cpu"))) == 40


def test_cache_serves_offline(hub, opened, commit):
    hub.repos[REPO].tags["v1.0.0"] = commit
    first = opened()
    first.fetch(REPO, commit_of(first, REPO, 1), "torch-cpu")
    hub.close()
    registry = opened(offline=True)
    for version in (1, "~=1.0"):
        assert commit_of(registry, REPO, version) == commit
    assert commit_of(registry, REPO, revision=commit) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu",)
    assert b"toy" in registry.metadata(REPO, commit, "torch-cpu")
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert commit_of(registry, "owner/other", 1) is None
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        registry.is_trusted_publisher("owner")


def test_version_downloaded_by_kernels_loads_offline(opened, cache, write_variant):
    # What `kernels` leaves of a load by version: a snapshot, and no reference to it.
    for number, version in enumerate((1, 1, 2)):
        snapshot = cache / "kernels--owner--toy" / "snapshots" / (f"{number}" * 40)
        write_variant(snapshot / "build", version=version)
        os.utime(snapshot, (number, number))
    registry = opened(offline=True)
    assert registry.refs(REPO) == {"v1": "1" * 40, "v2": "2" * 40}
    assert commit_of(registry, REPO, 1) == "1" * 40
    assert commit_of(registry, REPO, 3) is None
    (cache / "kernels--owner--toy" / "refs").mkdir()
    (cache / "kernels--owner--toy" / "refs" / "v1").write_text("0" * 40)
    assert commit_of(registry, REPO, 1) == "0" * 40


def test_unavailable_hub_falls_back_to_the_cache(hub, opened, commit, caplog):
    first = opened()
    first.fetch(REPO, commit_of(first, REPO, 1), "torch-cpu")
    hub.fault("/refs", 503, times=99)
    assert commit_of(opened(), REPO, 1) == commit
    assert "using the references of owner/toy in the cache" in caplog.text
    with pytest.raises(NetworkError, match="internal error"):
        commit_of(opened(), "owner/other", 1)


@pytest.mark.parametrize(
    "fault",
    [
        ("/refs", 429, 1),
        ("/refs", "drop", 1),
        ("/tree/", 500, 2),
        (r"/resolve/.*er\.py", 500, 1),
        ("/cdn/", "cut", 3),
        ("/cdn/", "drop", 1),
        ("/cdn/", "lie", 1),
        (r"/resolve/.*json$", "cut", 1),
    ],
)
def test_transient_fault_is_retried(hub, opened, commit, fault):
    hub.fault(*fault)
    registry = opened()
    assert commit_of(registry, REPO, 1) == commit
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert not list(registry.link_root(REPO).rglob("tmp-*"))


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (("/refs", 429), NetworkError, "is busy"),
        (("/refs", 500), NetworkError, "internal error: HTTP 500"),
        (("/refs", "drop"), NetworkError, "cannot be reached"),
        (("/refs", 418), RegistryError, "HTTP 418"),
        (("/resolve/", 403), RegistryError, "HTTP 403"),
        (("/cdn/", "lie"), IntegrityError, "is not what"),
        (("/cdn/", 404), RegistryError, "HTTP 404"),
    ],
)
def test_lasting_fault_is_a_typed_error_and_no_variant(hub, opened, fault, error, words):
    hub.add(REPO, "v1", FILES)
    hub.fault(*fault, times=99)
    registry = opened()
    with pytest.raises(error, match=words):
        load(registry)
    assert not list(registry.root.glob("*/snapshots/*/build"))


@pytest.mark.parametrize("path", ["build/../../../evil.py", "/evil.py", "build\\evil.py", "a//b"])
def test_path_traversal_in_a_listing_is_refused(hub, opened, cache, path):
    commit = hub.add(REPO, "v1", {path: b"evil"})
    with pytest.raises(RegistryError, match="is not valid"):
        opened().variants(REPO, commit)
    assert not list(cache.rglob("evil*"))


def test_damaged_cached_listing_is_requested_again(hub, opened, commit):
    opened().fetch(REPO, commit, "torch-cpu")
    (kept,) = opened().link_root(REPO).glob("listings/*.json")
    kept.write_text('{"schema": 1, "files": {"build/../../x": [1, "y"]}}')
    assert opened().variants(REPO, commit) == ("torch-cpu", "torch-cuda")


def test_truncated_blob_is_downloaded_again(opened, commit):
    path = opened().fetch(REPO, commit, "torch-cpu")
    (path / "toy.so").resolve().write_bytes(LIBRARY[:100])
    assert contents(opened().fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")


def test_read_only_cache_serves_its_files(hub, opened, commit, monkeypatch):
    opened().fetch(REPO, commit, "torch-cpu")

    def refuse(path, *_args, **_kwargs):
        raise StorageError(f"writing {path}: Read-only file system")

    for door in ("write_atomic", "write_new", "staging", "locked"):
        monkeypatch.setattr(f"kernforge.system.files.{door}", refuse)
    registry = opened()
    assert registry.fetch(REPO, commit_of(registry, REPO, 1), "torch-cpu").is_dir()


def test_reading_needs_no_package(opened, commit, monkeypatch):
    for name in ("huggingface_hub", "httpx", "requests", "certifi"):
        monkeypatch.setitem(sys.modules, name, None)
    assert load(opened()).is_dir()


def test_private_gated_and_absent_kernels_differ(hub, cache, commit, tmp_path):
    def client(token=None):
        (tmp_path / "token").write_text(f"{token}\n" if token else "")
        return HubTransport(HubEndpoint(url=hub.url, cache=cache, token_file=tmp_path / "token"))

    with pytest.raises(NotPublishedError, match="has no kernel 'owner/none'"):
        client().refs("owner/none")
    hub.repos[REPO].private = True
    with pytest.raises(NotPublishedError, match="or it is private: set HF_TOKEN"):
        client().refs(REPO)
    assert client(READER).refs(REPO)["v1"] == commit
    hub.repos[REPO].private, hub.repos[REPO].gated = False, True
    assert client(READER).refs(REPO)["v1"] == commit
    with pytest.raises(RegistryError, match="HTTP 401") as refused:
        client().refs(REPO)
    assert "accept its conditions" in refused.value.hint


def test_another_hub_gets_its_login_of_netrc_and_no_token(tmp_path):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")

    def refuse(handler):
        handler.start(403, Content_Length=0)

    with bad_server.serve(refuse) as server:
        variables = {"HF_TOKEN": "hub", "NETRC": str(tmp_path / "netrc"), "HOME": str(tmp_path)}
        place = open_registry(f"hf+{server.url}", Environment(variables))
        with pytest.raises(RegistryError, match="HTTP 403") as refused:
            place.refs(REPO)
        assert server.tokens == ["Basic " + base64.b64encode(b"me:secret").decode()]
    assert f"write a login for this host into {tmp_path / 'netrc'}" in refused.value.hint


def test_trusted_publishers_of_a_hub(hub, opened):
    hub.publishers.add("famous")
    hub.organizations.add("small")
    registry = opened()
    trusted = {o: registry.is_trusted_publisher(o) for o in ("famous", "small", "a-user")}
    assert trusted == {"famous": True, "small": False, "a-user": False}
