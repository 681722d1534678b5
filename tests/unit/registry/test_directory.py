# SPDX-License-Identifier: Apache-2.0
import errno
import os
import sys
import threading
import time

import pytest
from support import processes
from support.registries import REPO, publish_file
from support.registries import found as commit_of

from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError, RegistryError, RequestError, UsageError
from kernforge.registry import directory
from kernforge.registry.api import open_registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import request
from kernforge.system import files
from kernforge.system.digest import sha256


def test_a_file_beside_the_metadata_is_given_or_is_not_there(registry):
    new = publish_file(registry, "v1.0.0", "text")
    assert registry.small_file(REPO, new, "build/torch-cpu/sub/a.py") == b"text"
    assert registry.small_file(REPO, new, "build/torch-cpu/sub/b.py") is None
    assert registry.is_trusted_publisher("owner") is None


def test_the_layout_is_that_of_the_hubs_cache(registry):
    new = publish_file(registry, "v1.0.0", "text")
    repo = registry.root / "kernels--owner--toy"
    assert (repo / "refs/v1").read_text() == new
    link = repo / "snapshots" / new / "build/torch-cpu/sub/a.py"
    assert str(link.readlink()) == f"../../../../../blobs/{sha256('text')}"
    assert link.read_text() == "text"
    assert registry.tree(REPO, new) == {"build/torch-cpu/sub/a.py": sha256("text")}


def test_a_commit_follows_from_its_files_alone(registry, tmp_path):
    other = DirectoryRegistry(tmp_path / "other")
    assert publish_file(registry, "v1.0.0", "x") == publish_file(other, "v2.0.0", "x")
    assert publish_file(registry, "v1.0.1", "y") != publish_file(other, "v2.0.0", "x")


def test_who_waits_for_another_process_is_told(registry, monkeypatch, caplog):
    monkeypatch.setattr(directory, "_SILENT_S", 0)
    wrote = threading.Event()

    def write():
        with registry.writing(REPO):
            wrote.set()

    waiting = threading.Thread(target=write)
    with files.locked(registry.root / ".locks" / "kernels--owner--toy.lock"):
        waiting.start()
        end = time.monotonic() + 120
        while not caplog.messages and time.monotonic() < end:
            time.sleep(0.01)
        assert not wrote.is_set()
    waiting.join(120)
    assert wrote.is_set()
    assert caplog.messages == [
        f"another process writes {REPO} to {registry.root}: it is waited for"
    ]


def test_a_damaged_blob_or_snapshot_is_repaired_by_writing_it_again(registry):
    new = publish_file(registry, "v1.0.0", "text")
    blob = registry.link_root(REPO) / "blobs" / sha256("text")
    blob.write_text("tExt")
    (registry.snapshot(REPO, new) / "build/torch-cpu/sub/a.py").unlink()
    assert publish_file(registry, "v1.0.0", "text") == new
    assert (registry.snapshot(REPO, new) / "build/torch-cpu/sub/a.py").read_text() == "text"


def test_content_that_changes_underway_is_refused(registry, tmp_path):
    (tmp_path / "a.so").write_text("new")
    with pytest.raises(RegistryError, match=r"a\.so changed while it was published"):
        registry.add_blob(REPO, sha256("old"), tmp_path / "a.so")


def test_what_a_killed_writer_left_is_removed_a_day_later(registry):
    publish_file(registry, "v1.0.0", "text")
    leftovers = [
        registry.link_root(REPO) / kind / "tmp-kernforge-a1b2c3d4"
        for kind in ("blobs", "snapshots", "refs")
    ]
    leftovers[0].mkdir()
    leftovers[1].mkdir()
    leftovers[2].write_text("half a com")
    assert list(registry.refs(REPO)) == ["v1", "v1.0.0"]
    for leftover in leftovers:
        os.utime(leftover, (0, 0))
    publish_file(registry, "v1.0.1", "text")
    assert not any(leftover.exists() for leftover in leftovers)


def test_what_was_not_written_here_stays(registry):
    publish_file(registry, "v1.0.0", "text")
    others = registry.link_root(REPO) / "refs" / "tmp-x"
    others.write_text("a branch of another tool")
    publish_file(registry, "v1.0.1", "text")
    assert others.exists()


@pytest.mark.parametrize("name", ["tmp-x", "a/tmp-x", "/v1", "a//b", "../v1", ".hidden", "a b", ""])
def test_a_name_that_no_reference_may_have_is_refused(registry, name):
    commit = publish_file(registry, "v1.0.0", "text")
    with pytest.raises(RequestError, match="is not the name of a branch, a tag or a commit"):
        registry.set_ref(REPO, name, commit)
    assert registry.ref(REPO, name) is None
    with pytest.raises(RequestError):
        request(REPO, revision=name)


def fifo(path):
    os.mkfifo(path)


def endless(path):
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [fifo, endless])
def test_what_has_no_end_is_refused_where_a_document_lies(registry, put):
    commit = publish_file(registry, "v1.0.0", "text")
    for path, ask in (
        (registry.fetch(REPO, commit, "torch-cpu") / "metadata.json", registry.metadata),
        (registry.link_root(REPO) / "refs/v1", lambda *_: registry.ref(REPO, "v1")),
    ):
        path.unlink(missing_ok=True)
        put(path)
        with pytest.raises(IntegrityError, match="is not a file of at most"):
            ask(REPO, commit, "torch-cpu")


def test_branches_with_a_slash_are_listed(registry):
    commit = publish_file(registry, "v1.0.0", "text")
    registry.set_ref(REPO, "team/dev", commit)
    assert "team/dev" in registry.refs(REPO)
    assert commit_of(registry, REPO, revision="team/dev") == commit


def test_a_reference_that_does_not_name_a_commit_is_an_error(registry):
    publish_file(registry, "v1.0.0", "text")
    (registry.link_root(REPO) / "refs/v1").write_text("oops")
    with pytest.raises(RegistryError, match="holds 'oops'"):
        registry.ref(REPO, "v1")


@pytest.mark.parametrize(
    "repo_id", ["toy", "a/b/c", "../x", "a/..", "a/b--c", "a/.b", "/b", "a/", "-a/b", "a b/c"]
)
def test_a_repo_id_cannot_lead_out_of_the_registry(registry, repo_id):
    with pytest.raises(UsageError, match="is not a repo id"):
        registry.ref(repo_id, "v1")


def test_a_reference_that_another_machine_replaces_is_read_again(registry, monkeypatch):
    new = publish_file(registry, "v1.0.0", "one")
    real, stale = open, [OSError(errno.ESTALE, "Stale file handle")] * 2

    def shaky(path, *args, **kwargs):
        if "/refs/" in str(path) and stale:
            raise stale.pop()
        return real(path, *args, **kwargs)

    monkeypatch.setattr("builtins.open", shaky)
    assert registry.ref(REPO, "v1") == new
    stale.extend([OSError(errno.ESTALE, "Stale file handle")] * 3)
    with pytest.raises(OSError, match="Stale"):
        registry.ref(REPO, "v1")


PUBLISHER = """
import pathlib, sys
from kernforge.publish.api import publish
from kernforge.registry import open_registry

for build in sys.argv[2:]:
    publish(pathlib.Path(build), open_registry(sys.argv[1]), "owner/toy")
"""


def test_a_reader_sees_whole_versions_while_others_publish(tmp_path, write_variant):
    """Publishers are processes of their own, as on machines that share a directory."""
    url = (tmp_path / "a share").as_uri()
    texts = {}
    for publisher in range(3):
        texts[publisher] = []
        for number in range(4):
            directory = tmp_path / f"build-{publisher}-{number}"
            for name in ("torch-cpu", "torch-cuda"):
                backend = name.removeprefix("torch-")
                text = f"N = '{publisher}{number}'\n"
                files = {"__init__.py": text, "b.py": text}
                write_variant(directory, variant=name, backend=backend, files=files)
            texts[publisher].append(str(directory))
    argv = [sys.executable, "-c", PUBLISHER, url]
    running = [processes.start([*argv, *builds]) for builds in texts.values()]
    registry, seen = open_registry(url), set()
    while any(process.poll() is None for process in running):
        found = commit_of(registry, REPO, 1)
        seen.add(found)
        for name in registry.variants(REPO, found) if found else ():
            document = registry.metadata(REPO, found, name)
            path = registry.fetch(REPO, found, name)
            metadata = Metadata.from_json(document, source=name)
            verify_tree(path, metadata.digest, within=registry.link_root(REPO))
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len(seen) > 1
    assert not list(registry.root.rglob("tmp-*"))
