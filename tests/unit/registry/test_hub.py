# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import processes
from support.hub_server import HubServer
from support.registries import found

from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    StorageError,
    UsageError,
)
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.hub_client import HubClient
from kernforge.registry.hub_endpoint import HubEndpoint
from kernforge.system import files

pytest.importorskip("huggingface_hub")


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
def opened(hub: HubServer, cache: Path):
    """A registry as a fresh process would open it."""

    def open_hub(*, offline: bool = False, own_token: bool = False) -> HubRegistry:
        endpoint = HubEndpoint(url=hub.url, cache=cache, offline=offline, own_token=own_token)
        return HubRegistry(endpoint, HubClient(endpoint, wait=lambda _seconds: None))

    return open_hub


def load(registry):
    return registry.fetch(REPO, found(registry, REPO, 1), "torch-cpu")


def contents(path):
    files = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return {f"build/{path.name}/{name}": data for name, data in files.items()}


def expected(variant):
    return {
        path: data
        for path, data in FILES.items()
        if path.startswith(f"build/{variant}/") and not path.endswith(".pyc")
    }


def test_a_cold_load_brings_the_files_of_one_variant(hub, opened, commit):
    registry = opened()
    assert found(registry, REPO, 1) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu", "torch-cuda")
    assert b"toy" in registry.metadata(REPO, commit, "torch-cpu")
    assert registry.companion(REPO, commit, "torch-cpu", "metadata.json.sigstore") == b"signed"
    assert registry.companion(REPO, commit, "torch-cuda", "metadata.json.sigstore") is None
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")


def test_a_warm_load_by_commit_makes_no_request(hub, opened, commit):
    opened().fetch(REPO, commit, "torch-cpu")
    hub.counted()
    registry = opened()
    assert registry.fetch(REPO, found(registry, REPO, revision=commit), "torch-cpu").is_dir()
    assert registry.metadata(REPO, commit, "torch-cpu")
    assert hub.counted() == {}


def test_a_version_keeps_its_commit_while_a_process_runs(hub, opened, commit, monkeypatch):
    registry = opened()
    assert found(registry, REPO, 1) == commit
    hub.add(REPO, "v1", {"new": b""})
    hub.add(REPO, "v2", {"new": b""})
    monkeypatch.setattr("kernforge.registry.remote._REFS_LAST_S", 0.0)
    assert found(registry, REPO, 2), "what was not there is requested again"
    assert found(registry, REPO, 1) == commit


def test_versions_and_revisions_lead_to_commits(hub, opened):
    commits = {}
    for tag in ("v1.0.0", "v1.2.0", "v2.0.0"):
        commits[tag] = hub.add(REPO, tag[:2], {tag: b""})
        hub.repos[REPO].tags[tag] = commits[tag]
    registry = opened()
    for version, tag in [(1, "v1.2.0"), ("~=1.0", "v1.2.0"), ("1.0.0", "v1.0.0"), (2, "v2.0.0")]:
        assert found(registry, REPO, version) == commits[tag]
    for revision in ("v1.0.0", commits["v1.0.0"], commits["v1.0.0"][:8]):
        assert found(registry, REPO, revision=revision) == commits["v1.0.0"]
    for absent in ("v9", "f" * 40, "0123456789"):
        assert found(registry, REPO, revision=absent) is None
    with pytest.raises(NotPublishedError, match="has no commit"):
        registry.variants(REPO, "f" * 40)


def test_a_listing_of_many_pages_is_read_whole(hub, opened):
    hub.page = 7
    files = {f"build/torch-cpu/{n}.py": b"%d" % n for n in range(40)}
    commit = hub.add(REPO, "v1", files)
    assert len(contents(opened().fetch(REPO, commit, "torch-cpu"))) == 40


def test_offline_the_cache_answers(hub, opened, commit):
    hub.repos[REPO].tags["v1.0.0"] = commit
    first = opened()
    first.fetch(REPO, found(first, REPO, 1), "torch-cpu")
    hub.close()
    registry = opened(offline=True)
    for version in (1, "~=1.0"):
        assert found(registry, REPO, version) == commit
    assert found(registry, REPO, revision=commit) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu",)
    assert b"toy" in registry.metadata(REPO, commit, "torch-cpu")
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert found(registry, "owner/other", 1) is None
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        registry.is_trusted_publisher("owner")


def fetched_by_commit(cache, commit, version):
    """What `kernels` leaves of a load by version: a snapshot, and no reference to it."""
    folder = cache / "kernels--owner--toy" / "snapshots" / commit / "build" / "torch-cpu"
    folder.mkdir(parents=True)
    document = {"name": "toy", "id": "_toy", "version": version, "license": "x"}
    document |= {"python-depends": [], "backend": {"type": "cpu"}}
    (folder / "metadata.json").write_text(json.dumps(document))


def test_offline_a_version_without_a_reference_is_found_by_its_builds(hub, opened, cache):
    for number, version in enumerate((1, 1, 2)):
        fetched_by_commit(cache, f"{number}" * 40, version)
        snapshot = cache / "kernels--owner--toy" / "snapshots" / (f"{number}" * 40)
        os.utime(snapshot, (number, number))
    registry = opened(offline=True)
    assert registry.ref_names(REPO) == ("v1", "v2")
    assert found(registry, REPO, 1) == "1" * 40
    assert found(registry, REPO, 3) is None
    (cache / "kernels--owner--toy" / "refs").mkdir()
    (cache / "kernels--owner--toy" / "refs" / "v1").write_text("0" * 40)
    assert found(registry, REPO, 1) == "0" * 40


def test_the_user_agent_of_the_caller_is_added(hub, cache):
    endpoint = HubEndpoint(
        url=hub.url, cache=cache, offline=False, own_token=False, user_agent="app/1"
    )
    assert "app/1" in str(HubClient(endpoint).api.user_agent)


def test_without_a_network_a_commit_in_the_cache_loads(hub, opened, cache, commit):
    """Whichever client filled the cache: the listing that only this one keeps is not needed."""
    opened().fetch(REPO, commit, "torch-cpu")
    files.remove_tree(DirectoryRegistry(cache).repo(REPO) / "listings")
    for path in ("/refs", "/tree/"):
        hub.fault(path, 503, times=99)
    registry = opened()
    assert found(registry, REPO, revision=commit) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu",)
    assert (registry.fetch(REPO, commit, "torch-cpu") / "metadata.json").is_file()


def test_when_the_hub_is_down_the_cache_answers_with_a_warning(hub, opened, commit, caplog):
    first = opened()
    first.fetch(REPO, found(first, REPO, 1), "torch-cpu")
    hub.fault("/refs", 503, times=99)
    assert found(opened(), REPO, 1) == commit
    assert "using the references of owner/toy in the cache" in caplog.text
    with pytest.raises(NetworkError, match="has an internal error"):
        found(opened(), "owner/other", 1)


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
def test_what_may_pass_is_tried_again(hub, opened, commit, fault):
    hub.fault(*fault)
    registry = opened()
    assert found(registry, REPO, 1) == commit
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert not list(registry.link_root(REPO).rglob("tmp-*"))


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (("/refs", 429), NetworkError, "too many requests"),
        (("/refs", 500), NetworkError, "has an internal error: HTTP 500"),
        (("/refs", "drop"), NetworkError, "cannot be reached"),
        (("/refs", 418), RegistryError, "HTTP 418"),
        (("/resolve/", 403), RegistryError, "does not let you read"),
        (("/cdn/", "lie"), IntegrityError, "is not what"),
        (("/cdn/", 404), RegistryError, "HTTP 404"),
    ],
)
def test_what_stays_wrong_is_a_typed_error_and_leaves_nothing(hub, opened, fault, error, words):
    hub.add(REPO, "v1", FILES)
    hub.fault(*fault, times=99)
    registry = opened()
    with pytest.raises(error, match=words):
        load(registry)
    assert not list(registry.endpoint.cache.glob("*/snapshots/*/build"))
    assert not list(registry.endpoint.cache.rglob("tmp-*"))


@pytest.mark.parametrize("path", ["build/../../../evil.py", "/evil.py", "build\\evil.py", "a//b"])
def test_a_listing_cannot_leave_the_cache(hub, opened, cache, path):
    commit = hub.add(REPO, "v1", {path: b"evil"})
    with pytest.raises(RegistryError, match="is not valid"):
        opened().variants(REPO, commit)
    assert not list(cache.rglob("evil*"))


def test_a_listing_that_was_damaged_on_disk_is_asked_for_again(hub, opened, commit):
    opened().fetch(REPO, commit, "torch-cpu")
    (kept,) = opened().link_root(REPO).glob("listings/*.json")
    kept.write_text('{"schema": 1, "files": {"build/../../x": [1, "y"]}}')
    assert opened().variants(REPO, commit) == ("torch-cpu", "torch-cuda")


def test_a_truncated_blob_is_brought_again(opened, commit):
    path = opened().fetch(REPO, commit, "torch-cpu")
    (path / "toy.so").resolve().write_bytes(LIBRARY[:100])
    assert contents(opened().fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")


def test_a_read_only_cache_serves_what_it_holds(hub, opened, commit, monkeypatch):
    opened().fetch(REPO, commit, "torch-cpu")

    def refuse(path, *_args, **_kwargs):
        raise StorageError(f"writing {path}: Read-only file system")

    for door in ("write_atomic", "write_new", "staging", "locked"):
        monkeypatch.setattr(f"kernforge.system.files.{door}", refuse)
    registry = opened()
    assert registry.fetch(REPO, found(registry, REPO, 1), "torch-cpu").is_dir()


def test_threads_that_load_at_once_all_find_it(hub, opened, commit):
    registry = opened()
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(registry.fetch(REPO, commit, "torch-cpu")))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16


def test_without_huggingface_hub_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    endpoint = HubEndpoint(url="http://h", cache=tmp_path, offline=False, own_token=True)
    with pytest.raises(UsageError) as caught:
        HubRegistry(endpoint).ref(REPO, "v1")
    assert caught.value.hint == "pip install 'kernforge[hub]'"
    offline = HubEndpoint(url="http://h", cache=tmp_path, offline=True, own_token=True)
    assert HubRegistry(offline).ref(REPO, "v1") is None


CHILD = """
import pathlib, sys
from kernforge.registry.hub import HubRegistry
from kernforge.registry.hub_endpoint import HubEndpoint
from kernforge.system import files

endpoint = HubEndpoint(url=sys.argv[1], cache=pathlib.Path(sys.argv[2]), offline=False,
                       own_token=False)
path = HubRegistry(endpoint).fetch("owner/toy", sys.argv[3], "torch-cpu")
print(sum(len(p.read_bytes()) for p in path.rglob("*") if p.is_file()))
"""


def test_processes_on_a_cold_cache_all_find_it_whole(hub, cache, commit):
    whole = sum(map(len, expected("torch-cpu").values()))
    argv = [sys.executable, "-c", CHILD, hub.url, str(cache), commit]
    running = [processes.start(argv, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [int(process.communicate(timeout=300)[0]) for process in running] == [whole] * 6


def test_a_killed_load_leaves_nothing_half(hub, opened, cache, commit):
    started = threading.Event()
    stop = threading.Event()

    def stall(line):
        if "/cdn/" in line and not stop.is_set():
            started.set()
            stop.wait(60)

    hub.next_fault = stall
    argv = [sys.executable, "-c", CHILD, hub.url, str(cache), commit]
    process = processes.start(argv)
    assert started.wait(60)
    process.kill()
    process.wait()
    stop.set()
    assert not list(cache.glob("*/snapshots/*/build"))
    registry = opened()
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert not list(cache.rglob("tmp-*"))
