# SPDX-License-Identifier: Apache-2.0
"""What the hub's clients ask of a server, and what they need in its answers."""

import asyncio
import hashlib

import pytest
from support.memory_transport import MemoryTransport
from support.served import publish, served

from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.remote import RemoteRegistry
from kernforge.serve.source import Source
from kernforge.system.digest import git_blob

LIBRARY = bytes(range(256)) * 4000
FILES = {
    "README.md": b"# toy\n",
    "build/torch-cpu/metadata.json": b'{"name": "toy"}',
    'build/torch-cpu/na\xefve+%20 "x".py': b"x = 1\n",
    "build/torch-cpu/toy.so": LIBRARY,
    "build/torch-cpu/empty.py": b"",
}
SO = "build/torch-cpu/toy.so"


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    registry = DirectoryRegistry(tmp_path_factory.mktemp("registry"))
    publish(registry, "acme/toy", FILES, "main", "v1", "v1.0.0", "team/dev")
    publish(registry, "acme/other", {"README.md": b"# other"}, "v3")
    return registry


@pytest.fixture(scope="module")
def commit(registry):
    return registry.ref("acme/toy", "v1")


@pytest.fixture(scope="module")
def server(registry, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "log"
    with served(registry.root, log, "--trusted", "ac*") as server:
        yield server


def test_references_are_branches_and_tags(server, commit):
    document = server.ask("/api/kernels/acme/toy/refs?include_prs=1").json()
    names = [branch["name"] for branch in document["branches"]]
    assert names == ["main", "team/dev", "v1"]
    tag = {"name": "v1.0.0", "ref": "refs/tags/v1.0.0", "targetCommit": commit}
    assert document["tags"] == [tag]
    assert document["converts"] == document["pullRequests"] == []


def test_kernels_are_found_by_a_part_of_their_name(server):
    assert server.ask("/api/kernels?search=OTH&limit=20").json() == [{"id": "acme/other"}]


@pytest.mark.parametrize("revision", ["v1", "v1.0.0", "refs%2Fheads%2Fv1", "team%2Fdev", ""])
def test_revisions_lead_to_their_commit(server, commit, revision):
    for name in (revision, commit, commit[:7]) if revision else ("",):
        answer = server.ask(f"/api/kernels/acme/toy{'/revision/' if name else ''}{name}")
        document = answer.json()
        assert (document["id"], document["sha"]) == ("acme/toy", commit)
        assert {file["rfilename"] for file in document["siblings"]} == set(FILES)


def test_kernel_without_main_has_its_newest_version(server, registry):
    sha = registry.ref("acme/other", "v3")
    assert server.ask("/api/kernels/acme/other").json()["sha"] == sha


def test_tree_has_folders_and_files_with_their_hashes(server, commit):
    path = f"/api/kernels/acme/toy/tree/{commit}"
    answer = server.ask(path)
    assert [item["path"] for item in answer.json()] == ["README.md", "build"]
    assert "immutable" in answer.headers["Cache-Control"]
    folder = server.ask(f"{path}/build%2Ftorch-cpu?recursive=true")
    items = {item["path"]: item for item in folder.json()}
    assert set(items) == {name for name in FILES if name.startswith("build/")}
    digest = hashlib.sha256(LIBRARY).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 1024000\n"
    large = {"oid": digest, "size": len(LIBRARY), "pointerSize": len(pointer)}
    item = {"type": "file", "oid": git_blob(pointer.encode()), "size": len(LIBRARY), "path": SO}
    assert items[SO] == {**item, "lfs": large}
    assert server.ask(f"{path}/none").headers["X-Error-Code"] == "EntryNotFound"


def test_file_has_the_headers_of_the_hub(server, commit):
    digest = hashlib.sha256(LIBRARY).hexdigest()
    for revision in ("v1", commit):
        path = f"/kernels/acme/toy/resolve/{revision}/{SO}"
        head, got = server.ask(path, method="HEAD"), server.ask(path)
        assert (head.status, head.body, got.body) == (200, b"", LIBRARY)
        for headers in (head.headers, got.headers):
            assert headers["X-Repo-Commit"] == commit
            assert headers["ETag"] == f'"{digest}"'
            assert headers["Content-Length"] == str(len(LIBRARY))
            assert "sandbox" in headers["Content-Security-Policy"]
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Content-Disposition"].startswith("attachment")
            assert ("immutable" in headers["Cache-Control"]) == (revision == commit)


@pytest.mark.parametrize(
    ("asked", "status", "part"),
    [
        ("bytes=10-", 206, slice(10, None)),
        ("bytes=10-19", 206, slice(10, 20)),
        ("bytes=-7", 206, slice(-7, None)),
        (f"bytes=5-{10**17}", 206, slice(5, None)),
        (f"bytes={10**17}-", 416, slice(0)),
        ("bytes=-0", 416, slice(0)),
    ],
)
def test_range_gives_its_bytes(server, asked, status, part):
    answer = server.ask(f"/kernels/acme/toy/resolve/v1/{SO}", Range=asked)
    assert (answer.status, answer.body) == (status, LIBRARY[part])
    assert answer.headers["Content-Range"].endswith(f"/{len(LIBRARY)}")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/kernels/acme/none/refs", 404, "RepoNotFound"),
        ("/api/kernels/acme/toy/tree/v9", 404, "RevisionNotFound"),
        (f"/api/kernels/acme/toy/revision/{'0' * 40}", 404, "RevisionNotFound"),
        ("/kernels/acme/toy/resolve/v1/none", 404, "EntryNotFound"),
        ("/api/agent-harnesses", 404, None),
        ("/api/organizations/nobody/overview", 404, None),
    ],
)
def test_errors_are_named_as_the_hub_does(server, path, status, code):
    answer = server.ask(path)
    assert (answer.status, answer.headers["X-Error-Code"]) == (status, code)
    assert answer.json()["error"] == answer.headers["X-Error-Message"]


def test_owner_of_the_option_is_trusted(server):
    document = server.ask("/api/organizations/acme/overview").json()
    assert document["trustedKernelPublisher"] is True


def test_used_address_is_an_error(server, tmp_path, kernforge_cli):
    done = kernforge_cli("serve", tmp_path, "--host", "192.0.2.1", expect=2)
    assert "cannot listen at 192.0.2.1, port 8000" in done.stderr


def test_missing_directory_is_an_error(tmp_path, kernforge_cli):
    done = kernforge_cli("serve", tmp_path / "typo", expect=8)
    assert "typo does not exist" in done.stderr


def test_new_version_is_seen(server, registry):
    new = publish(registry, "acme/moving", {"README.md": b"1"}, "main")
    server.ask("/api/kernels/acme/moving")
    new = publish(registry, "acme/moving", {"README.md": b"2"}, "main")
    while server.ask("/api/kernels/acme/moving").json()["sha"] != new:
        pass  # for about a second


def test_requests_are_counted_and_logged(server):
    agent = "kernels/0.17.2; torch/2.13"
    server.ask("/api/kernels/acme/toy/refs", User_Agent=agent)
    while not (lines := [line for line in server.lines() if line["agent"] == agent]):
        pass  # it is written after the answer
    (line,) = lines
    assert line["path"] == "/api/kernels/acme/toy/refs"
    assert (line["method"], line["status"], line["client"]) == ("GET", 200, "127.0.0.1")
    metrics = server.ask("/metrics").body.decode()
    route = 'route="refs",status="200"'
    assert f"kernforge_requests_total{{{route}}}" in metrics


def test_long_commits_of_other_registries_are_cut(tmp_path, monkeypatch):
    commit = "ab" * 32
    transport = MemoryTransport({"acme/toy": FILES}, {"v1"})
    monkeypatch.setattr(transport, "refs", lambda _: {"v1": commit})
    source = Source(RemoteRegistry(transport, "memory://here", tmp_path))

    async def ask():
        for revision in ("v1", commit[:40], commit[:9], commit):
            assert await source.commit("acme/toy", revision) == commit
        assert set(await source.listing("acme/toy", commit)) == set(FILES)
        assert (await source.content("acme/toy", commit, SO)).read_bytes() == LIBRARY

    asyncio.run(ask())


def test_last_references_count_while_the_registry_is_away(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNFORGE_HOME", str(tmp_path / "home"))
    hub.add("acme/toy", "v1", FILES)
    with served(f"hf+{hub.url}", tmp_path / "log") as server:
        path = f"/kernels/acme/toy/resolve/v1/{SO}"
        assert server.ask(path).body == LIBRARY
        hub.close()
        while "the last answer counts" not in server.log.read_text():
            assert server.ask(path).body == LIBRARY  # again after a second
        assert server.ask("/api/kernels/acme/other").status == 503


def test_proxy_may_serve_under_a_path(registry, commit, tmp_path):
    with served(registry.root, tmp_path / "log", "--url", "https://host/hub") as server:
        for prefix in ("", "/hub"):
            answer = server.ask(f"{prefix}/api/kernels/acme/toy/revision/team%2Fdev")
            assert answer.json()["sha"] == commit
