# SPDX-License-Identifier: Apache-2.0
"""Registries in directories that a web server shows: copies, requests, resumption, logins."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support import bad_server
from support.commands import call
from support.registries import LIBRARY, commit_of

from kernforge.errors import (
    IntegrityError,
    KernforgeError,
    NetworkError,
    NotPublishedError,
    RegistryError,
)
from kernforge.publish.api import publish
from kernforge.registry import listing
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.remote import RemoteRegistry
from kernforge.registry.static import StaticTransport

REPO, VARIANT = "owner/toy", "torch-cpu"
PLACE = "kernels--owner--toy"


@pytest.fixture
def published(tmp_path, two_variants):
    """A registry in a directory with two variants."""
    registry = DirectoryRegistry(tmp_path / "registry")
    publish(two_variants, registry, REPO, card="# toy\n")
    return registry


def rsync(source, target):
    subprocess.run(["rsync", "-a", f"{source}/", target], check=True)


def followed(source, target):
    shutil.copytree(source, target)


@pytest.fixture
def show(tmp_path, published, web_server):
    """A function that copies the registry and shows it: as a new machine sees it, the server."""

    def show(copy=followed):
        copy(published.root, tmp_path / "www")
        server = web_server(tmp_path / "www")
        return reader(server.url, tmp_path / "cache"), server

    return show


def reader(url, cache, netrc=Path("/nonexistent")):
    return RemoteRegistry(StaticTransport(url, netrc), url, cache)


@pytest.mark.parametrize("copy", [rsync, followed])
def test_a_copied_directory_loads_in_four_requests(show, copy):
    if copy is rsync and not shutil.which("rsync"):
        pytest.skip("rsync is not here")
    registry, server = show(copy)
    commit = commit_of(registry, REPO, 1)
    registry.metadata(REPO, commit, VARIANT)
    path = registry.fetch(REPO, commit, VARIANT)
    assert (path / "toy.so").read_text() == LIBRARY
    cold = server.requests()
    assert len(cold) == 4, cold
    other = reader(server.url, registry.root)
    other.metadata(REPO, commit, VARIANT)
    assert other.fetch(REPO, commit, VARIANT) == path
    assert server.requests() == cold, "by commit nothing is requested"


def test_an_interrupted_download_continues(show, monkeypatch):
    registry, server = show()
    opened = registry.transport.open

    def interrupted(repo_id, commit, part):
        data = b"".join(opened(repo_id, commit, part))
        yield data if len(data) < 200_000 else data[:100_000]

    monkeypatch.setattr(registry.transport, "open", interrupted)
    commit = commit_of(registry, REPO, 1)
    with pytest.raises(NetworkError, match="interrupted after 400000 of 640000 bytes"):
        registry.fetch(REPO, commit, VARIANT)
    again = reader(server.url, registry.root)
    assert (again.fetch(REPO, commit, VARIANT) / "toy.so").read_text() == LIBRARY
    ranges = [line.rpartition("bytes=")[2] for line in server.requests() if "/blobs/" in line]
    assert ranges[1:] == [f"{done}-639999" for done in range(100_000, 500_000, 100_000)]


def test_bytes_that_differ_are_refused(show, tmp_path):
    registry, _ = show()
    commit = commit_of(registry, REPO, 1)
    for kind in ("blobs", "packs"):
        for file in (tmp_path / "www" / PLACE / kind).iterdir():
            data = file.read_bytes()
            file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if data else data)
    with pytest.raises(IntegrityError, match="is not what http"):
        registry.fetch(REPO, commit, VARIANT)


def test_a_refused_download_ends_its_request(show, monkeypatch):
    registry, _ = show()
    commit = commit_of(registry, REPO, 1)
    open_requests = []

    def too_long(_repo_id, _commit, part):
        open_requests.append(part.path)
        try:
            yield bytes(part.size + 1)
        finally:
            open_requests.remove(part.path)

    monkeypatch.setattr(registry.transport, "open", too_long)
    with pytest.raises(KernforgeError):
        registry.fetch(REPO, commit, VARIANT)
    assert open_requests == []


def test_an_unfinished_copy_says_so(show, tmp_path):
    registry, _ = show()
    commit = commit_of(registry, REPO, 1)
    shutil.rmtree(tmp_path / "www" / PLACE / "packs")
    with pytest.raises(NotPublishedError, match=r"has no build/\S+ of owner/toy: HTTP 404"):
        registry.fetch(REPO, commit, VARIANT)


def test_versions_of_an_older_kernforge_are_shown_too(published, tmp_path, show, write_variant):
    old = published.ref(REPO, "v1.0.0")
    for name in ("listings", "packs", listing.REFS):
        place = published.link_root(REPO) / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    write_variant(tmp_path / "new", version=2)
    publish(tmp_path / "new", published, REPO)
    registry, _ = show()
    assert commit_of(registry, REPO, "==1.0.0") == old
    assert (registry.fetch(REPO, old, VARIANT) / "toy.so").is_file()


def test_a_login_goes_to_its_host_alone(tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    login = "Basic " + base64.b64encode(b"me:secret").decode()

    def answer(handler):
        handler.json({"schema": 1, "refs": {}})

    with bad_server.serve(answer) as other:
        moved = other.url.replace("127.0.0.1", "localhost")

        def redirect(handler):
            handler.start(302, Location=f"{moved}{handler.path}", Content_Length=0)

        with bad_server.serve(redirect) as server:
            assert reader(server.url, tmp_path / "a", netrc).refs(REPO) == {}
            assert (server.tokens, other.tokens) == ([login], [""])
        assert reader(moved, tmp_path / "b", netrc).refs(REPO) == {}
        assert other.tokens == ["", ""]


def test_search_of_what_cannot_be_listed_is_an_error(web_server, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    assert call("search", "toy", "--registry", web_server(tmp_path).url)
    said = "".join(capsys.readouterr())
    assert "does not list its kernels" in said
    assert "no kernel" not in said


HASH = "0" * 64
LISTINGS = {
    "traversal": {"build/../../x": [1, HASH]},
    "an absolute path": {"/etc/x": [1, HASH]},
    "a backslash": {"build\\x": [1, HASH]},
    "two names on a case-insensitive disk": {"build/a/X": [1, HASH], "build/a/x": [1, HASH]},
    "two such folders": {"build/A/x": [1, HASH], "build/a/y": [1, HASH]},
    "a huge file": {"build/a/x": [1 << 60, HASH]},
    "a negative size": {"build/a/x": [-1, HASH]},
    "a far offset": {"build/a/x": [1, HASH, HASH, 1 << 60]},
    "a blob elsewhere": {"build/a/x": [1, "../../x"]},
    "a pack elsewhere": {"build/a/x": [1, HASH, "../../x", 0]},
    "slices that overlap": {"build/a/x": [2, HASH, HASH, 0], "build/a/y": [2, "1" * 64, HASH, 1]},
    "a slice of two hashes": {"build/a/x": [2, HASH, HASH, 0], "source/y": [2, "1" * 64, HASH, 0]},
    "a link": {"build/a/x": {"link": "/etc/passwd"}},
    "no rows": {"build/a/x": 5},
}


@pytest.mark.parametrize("files", LISTINGS.values(), ids=LISTINGS)
def test_a_hostile_listing_writes_nothing(tmp_path, web_server, files):
    root = tmp_path / "www" / PLACE
    (root / "listings").mkdir(parents=True)
    commit = "0" * 40
    (root / "listings" / f"{commit}.json").write_text(json.dumps({"schema": 1, "files": files}))
    server = web_server(tmp_path / "www")
    registry = reader(server.url, tmp_path / "cache")
    with pytest.raises((RegistryError, IntegrityError)):
        registry.fetch(REPO, commit, "a")
    cached = (tmp_path / "cache").rglob("*")
    assert [path for path in cached if path.is_file() and path.suffix != ".lock"] == []


@pytest.mark.parametrize("refs", [{"../v1": HASH}, {"v1": "../../x"}, {"v1": 5}, [], {".": HASH}])
def test_hostile_references_are_refused(tmp_path, web_server, refs):
    root = tmp_path / "www" / PLACE
    root.mkdir(parents=True)
    (root / listing.REFS).write_text(json.dumps({"schema": 1, "refs": refs}))
    server = web_server(tmp_path / "www")
    with pytest.raises(KernforgeError):
        assert reader(server.url, tmp_path / "cache").refs(REPO) == "refused"
