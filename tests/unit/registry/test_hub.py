# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.hub_server import READER, HubServer

import kernforge
from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    StorageError,
    TrustError,
    UsageError,
)
from kernforge.registry import hub_endpoint
from kernforge.registry.api import (
    Chain,
    answering,
    find_revision,
    find_version,
    open_default,
    open_registry,
)
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.hub_client import HubClient
from kernforge.registry.hub_endpoint import HubPlace
from kernforge.system.environment import Environment

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

    def make(*, offline: bool = False, own_token: bool = False) -> HubRegistry:
        place = HubPlace(endpoint=hub.url, cache=cache, offline=offline, own_token=own_token)
        return HubRegistry(place, HubClient(place, wait=lambda _seconds: None))

    return make


def load(registry):
    return registry.fetch(REPO, find_version(registry, REPO, 1), "torch-cpu")


def contents(path):
    files = {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    return {f"build/{path.name}/{name}": data for name, data in files.items()}


def expected(variant):
    return {
        path: data
        for path, data in FILES.items()
        if path.startswith(f"build/{variant}/") and not path.endswith(".pyc")
    }


def test_a_cold_load_is_two_requests_and_the_files_that_are_not_empty(hub, opened, commit):
    registry = opened()
    assert find_version(registry, REPO, 1) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu", "torch-cuda")
    assert b"toy" in registry.metadata(REPO, commit, "torch-cpu")
    assert registry.companion(REPO, commit, "torch-cpu", "metadata.json.sigstore") == b"signed"
    assert registry.companion(REPO, commit, "torch-cuda", "metadata.json.sigstore") is None
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert hub.counted() == {"GET refs": 1, "GET tree": 1, "GET resolve": 4, "GET cdn": 1}
    registry.fetch(REPO, commit, "torch-cuda")
    assert hub.counted() == {"GET resolve": 1}, "deep/er.py is in the cache already"


def test_a_warm_load_asks_for_references_alone_and_by_commit_for_nothing(hub, opened, commit):
    opened().fetch(REPO, commit, "torch-cpu")
    hub.counted()
    registry = opened()
    assert registry.fetch(REPO, find_version(registry, REPO, 1), "torch-cpu").is_dir()
    assert find_version(registry, REPO, "1") == commit
    assert hub.counted() == {"GET refs": 1}
    registry = opened()
    assert registry.fetch(REPO, find_revision(registry, REPO, commit), "torch-cpu").is_dir()
    assert registry.metadata(REPO, commit, "torch-cpu")
    assert hub.counted() == {}


def test_versions_and_revisions_lead_to_commits(hub, opened):
    made = {}
    for tag in ("v1.0.0", "v1.2.0", "v2.0.0"):
        made[tag] = hub.add(REPO, tag[:2], {tag: b""})
        hub.repos[REPO].tags[tag] = made[tag]
    registry = opened()
    for version, tag in [(1, "v1.2.0"), ("~=1.0", "v1.2.0"), ("1.0.0", "v1.0.0"), (2, "v2.0.0")]:
        assert find_version(registry, REPO, version) == made[tag]
    for revision in ("v1.0.0", made["v1.0.0"], made["v1.0.0"][:8]):
        assert find_revision(registry, REPO, revision) == made["v1.0.0"]
    for absent in ("v9", "f" * 40, "0123456789"):
        assert find_revision(registry, REPO, absent) is None
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
    first.fetch(REPO, find_version(first, REPO, 1), "torch-cpu")
    hub.close()
    registry = opened(offline=True)
    for version in (1, "~=1.0"):
        assert find_version(registry, REPO, version) == commit
    assert find_revision(registry, REPO, commit) == commit
    assert registry.variants(REPO, commit) == ("torch-cpu",)
    assert b"toy" in registry.metadata(REPO, commit, "torch-cpu")
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert find_version(registry, "owner/other", 1) is None
    with pytest.raises(NetworkError, match="HF_HUB_OFFLINE"):
        registry.trusted_publisher("owner")


def test_when_the_hub_is_down_the_cache_answers_with_a_warning(hub, opened, commit, caplog):
    first = opened()
    first.fetch(REPO, find_version(first, REPO, 1), "torch-cpu")
    hub.fault("/refs", 503, times=99)
    assert find_version(opened(), REPO, 1) == commit
    assert "the cache answers" in caplog.text
    with pytest.raises(NetworkError, match="out of order"):
        find_version(opened(), "owner/other", 1)


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
    assert find_version(registry, REPO, 1) == commit
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert not list(registry.link_root(REPO).rglob("tmp-*"))


def test_a_file_that_broke_off_is_continued(hub, opened, commit):
    hub.fault("/cdn/", "cut", 2)
    seen = []
    registry = opened()
    entry = registry.client.listing(REPO, commit)["build/torch-cpu/toy.so"]
    target = registry.place.cache / "file"
    registry.client.download(
        REPO, commit, "build/torch-cpu/toy.so", entry, target=target, advance=seen.append
    )
    assert target.read_bytes() == LIBRARY
    assert sum(seen) == len(LIBRARY), "no byte came twice"


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (("/refs", 429), NetworkError, "too many requests"),
        (("/refs", 500), NetworkError, "out of order: HTTP 500"),
        (("/refs", "drop"), NetworkError, "cannot be reached"),
        (("/refs", 418), RegistryError, "HTTP 418"),
        (("/resolve/", 403), RegistryError, "does not allow"),
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
    assert not list(registry.place.cache.glob("*/snapshots/*/build"))
    assert not list(registry.place.cache.rglob("tmp-*"))


def test_private_gated_and_absent_kernels_are_told_apart(
    hub, opened, commit, monkeypatch, tmp_path
):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "absent"))
    with pytest.raises(NotPublishedError, match="shows no kernel 'owner/none'"):
        find_version(opened(), "owner/none", 1)
    hub.repos[REPO].private = True
    with pytest.raises(NotPublishedError, match="or it is private: set HF_TOKEN"):
        find_version(opened(own_token=True), REPO, 1)
    monkeypatch.setenv("HF_TOKEN", READER)
    assert find_version(opened(own_token=True), REPO, 1) == commit
    hub.repos[REPO].private, hub.repos[REPO].gated = False, True
    assert find_version(opened(own_token=True), REPO, 1) == commit
    hub.tokens.clear()
    with pytest.raises(RegistryError, match="gated by its owner"):
        find_version(opened(own_token=False), REPO, 1)
    assert set(hub.tokens) == {""}, "the token is another hub's"


def test_a_hub_says_whom_it_trusts(hub, opened):
    hub.publishers.add("famous")
    hub.organizations.add("small")
    registry = opened()
    found = {o: registry.trusted_publisher(o) for o in ("famous", "small", "a-user")}
    assert found == {"famous": True, "small": False, "a-user": False}


@pytest.mark.parametrize("path", ["build/../../../evil.py", "/evil.py", "build\\evil.py", "a//b"])
def test_a_listing_cannot_leave_the_cache(hub, opened, cache, path):
    commit = hub.add(REPO, "v1", {path: b"evil"})
    with pytest.raises(RegistryError, match="cannot be"):
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
    assert registry.fetch(REPO, find_version(registry, REPO, 1), "torch-cpu").is_dir()


def test_threads_that_load_at_once_bring_each_file_once(hub, opened, commit):
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
    assert hub.counted() == {"GET tree": 1, "GET resolve": 4, "GET cdn": 1}


@pytest.fixture
def publish_by_hand(hub, tmp_path, write_variant):
    """Put a kernel that can be loaded on the hub, without our publisher."""

    def put(repo_id, text, **fields):
        name = repo_id.partition("/")[2]
        variant = write_variant(
            tmp_path / f"{name}-{len(hub.requests)}", name=name, files={"__init__.py": text},
            unique=f"{len(text):07x}", **fields
        )  # fmt: skip
        return hub.add(repo_id, "v1", contents(variant))

    return put


@pytest.fixture
def usual_hub(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("KERNELS_CACHE", str(tmp_path / "kernels"))
    monkeypatch.delenv("KERNFORGE_REGISTRY", raising=False)
    return hub


def test_a_kernel_loads_from_the_hub_if_its_publisher_is_trusted(usual_hub, publish_by_hand):
    publish_by_hand("owner/one", "WHO = 'one'")
    with pytest.raises(TrustError):
        kernforge.get_kernel("owner/one", version=1)
    assert kernforge.get_kernel("owner/one", version=1, trust_remote_code=True).WHO == "one"
    usual_hub.publishers.add("famous")
    publish_by_hand("famous/two", "WHO = 'two'")
    assert kernforge.get_kernel("famous/two", version=1).WHO == "two"
    usual_hub.counted()
    assert kernforge.get_kernel("famous/two", version=1).WHO == "two"
    assert usual_hub.counted() == {}


def test_a_kernel_that_moved_is_followed(usual_hub, publish_by_hand):
    publish_by_hand("owner/new-place", "WHO = 'moved'")
    status = b'kind = "redirect"\ndestination = "owner/new-place"\nrevision = "v1"\n'
    usual_hub.add("owner/old-place", "v1", {"kernel-status.toml": status})
    kernel = kernforge.get_kernel("owner/old-place", version=1, trust_remote_code=True)
    assert kernel.WHO == "moved"


def test_a_changed_file_on_the_hub_is_refused(usual_hub, publish_by_hand):
    publish_by_hand("owner/three", "WHO = 'three'")
    usual_hub.add("owner/three", "v1", {"build/torch-cpu/__init__.py": b"WHO = 'evil'"})
    with pytest.raises(IntegrityError, match="changed: __init__"):
        kernforge.get_kernel("owner/three", version=1, trust_remote_code=True)


USUAL = {"HF_ENDPOINT": "https://hub.example.com/"}


@pytest.mark.parametrize(
    ("location", "variables", "expected"),
    [
        ("hf://", {}, ("https://huggingface.co", "~/.cache/huggingface/hub", True)),
        ("hf://", USUAL, ("https://hub.example.com", "~/.cache/huggingface/hub", True)),
        ("hf+https://hub.example.com", USUAL, ("https://hub.example.com", None, True)),
        ("hf://", {"HF_HOME": "/h"}, ("https://huggingface.co", "/h/hub", True)),
        ("hf://", {"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, ("https://huggingface.co", "/c", True)),
        ("hf://", {"KERNELS_CACHE": "/k", "HF_HUB_CACHE": "/c"}, (None, "/k", True)),
        ("hf://", {"XDG_CACHE_HOME": "/x"}, (None, "/x/huggingface/hub", True)),
        ("hf+http://10.0.0.1:80", {}, ("http://10.0.0.1:80", "/kf/hubs/10.0.0.1-80", False)),
    ],
)
def test_the_environment_says_which_hub(location, variables, expected):
    endpoint, cache, own = expected
    place = hub_endpoint.find(location, Environment({"KERNFORGE_HOME": "/kf", **variables}))
    assert endpoint in {None, place.endpoint}
    assert cache is None or place.cache == Path(cache).expanduser()
    assert (place.own_token, place.offline) == (own, False)


def test_names_of_hubs_that_are_none_are_refused():
    for location in ("hf://host", "hf+https://", "hf+ftp://host", "https://huggingface.co"):
        with pytest.raises(RegistryError, match="no registry that kernforge can open"):
            open_registry(location)
    for location in ("hf+https://user:secret@host", "hf+https://ho st"):
        with pytest.raises(RegistryError, match="no address of a hub"):
            open_registry(location)


def test_offline_is_said_as_the_hubs_own_client_reads_it():
    for value, offline in [("1", True), ("true", True), ("0", False), ("", False)]:
        assert hub_endpoint.find("hf://", Environment({"HF_HUB_OFFLINE": value})).offline is offline


def test_without_a_registry_the_hub_answers_for_what_the_user_has_not(
    usual_hub, commit, tmp_path, monkeypatch
):
    assert find_version(open_default(Environment.read()), REPO, 1) == commit
    own = DirectoryRegistry(tmp_path / "home/registry")
    with own.writing(REPO):
        mine, _ = own.add_snapshot(REPO, {})
        own.set_ref(REPO, "v2", mine)
    default = open_default(Environment.read())
    assert isinstance(default, Chain)
    assert answering(default, REPO).url == own.url
    assert find_version(default, REPO, 1) is None, "a kernel is answered for by one registry"
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(own.root))
    assert open_default(Environment.read()) is open_registry(str(own.root))


def test_without_huggingface_hub_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    place = HubPlace(endpoint="http://h", cache=tmp_path, offline=False, own_token=True)
    with pytest.raises(UsageError) as caught:
        HubRegistry(place).ref(REPO, "v1")
    assert caught.value.hint == "pip install 'kernforge[hub]'"
    offline = HubPlace(endpoint="http://h", cache=tmp_path, offline=True, own_token=True)
    assert HubRegistry(offline).ref(REPO, "v1") is None


CHILD = """
import pathlib, sys
from kernforge.registry.hub import HubRegistry
from kernforge.registry.hub_endpoint import HubPlace
from kernforge.system.environment import Environment

place = HubPlace(endpoint=sys.argv[1], cache=pathlib.Path(sys.argv[2]), offline=False,
                 own_token=False)
path = HubRegistry(place).fetch("owner/toy", sys.argv[3], "torch-cpu")
print(sum(len(p.read_bytes()) for p in path.rglob("*") if p.is_file()))
"""


def test_processes_on_a_cold_cache_all_find_it_whole(hub, cache, commit):
    whole = sum(map(len, expected("torch-cpu").values()))
    argv = [sys.executable, "-c", CHILD, hub.url, str(cache), commit]
    running = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert [int(process.communicate(timeout=120)[0]) for process in running] == [whole] * 6
    assert hub.counted()["GET cdn"] == 1


def test_a_killed_load_leaves_nothing_half(hub, opened, cache, commit):
    started = threading.Event()
    stop = threading.Event()

    def stall(line):
        if "/cdn/" in line and not stop.is_set():
            started.set()
            stop.wait(60)

    hub.next_fault = stall
    argv = [sys.executable, "-c", CHILD, hub.url, str(cache), commit]
    process = subprocess.Popen(argv)
    assert started.wait(60)
    process.kill()
    process.wait()
    stop.set()
    assert not list(cache.glob("*/snapshots/*/build"))
    registry = opened()
    assert contents(registry.fetch(REPO, commit, "torch-cpu")) == expected("torch-cpu")
    assert not list(cache.rglob("tmp-*"))
