# SPDX-License-Identifier: Apache-2.0
import os

import pytest
from support.registries import REPO, commit_of, publish_file

from kernforge.errors import IntegrityError, RegistryError, RequestError, UsageError
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.listing import read_listing
from kernforge.registry.names import request
from kernforge.system import files
from kernforge.system.digest import sha256


def test_layout_is_the_hubs_cache(registry):
    new = publish_file(registry, "v1.0.0", "text")
    repo = registry.root / "kernels--owner--toy"
    assert (repo / "refs/v1").read_text() == new
    link = repo / "snapshots" / new / "build/torch-cpu/sub/a.py"
    assert str(link.readlink()) == f"../../../../../blobs/{sha256('text')}"
    assert link.read_text() == "text"
    assert registry.tree(REPO, new) == {"build/torch-cpu/sub/a.py": sha256("text")}


def test_commit_is_a_hash_of_its_files(registry, tmp_path):
    other = DirectoryRegistry(tmp_path / "other")
    assert publish_file(registry, "v1.0.0", "x") == publish_file(other, "v2.0.0", "x")
    assert publish_file(registry, "v1.0.1", "y") != publish_file(other, "v2.0.0", "x")


def test_publishing_again_repairs_damage(registry):
    new = publish_file(registry, "v1.0.0", "text")
    blob = registry.link_root(REPO) / "blobs" / sha256("text")
    blob.write_text("tExt")
    (registry.snapshot(REPO, new) / "build/torch-cpu/sub/a.py").unlink()
    assert publish_file(registry, "v1.0.0", "text") == new
    assert (registry.snapshot(REPO, new) / "build/torch-cpu/sub/a.py").read_text() == "text"


def test_index_lists_a_variant_that_came_later(registry):
    new = publish_file(registry, "v1.0.0", "text")
    for variant in ("torch-cpu", "torch-cuda"):
        files.write_new(registry.snapshot(REPO, new) / "build" / variant / "b.py", b"")
        registry.write_index(REPO, new)
    document = (registry.link_root(REPO) / "listings" / f"{new}.json").read_bytes()
    assert {path.split("/")[1] for path in read_listing(document)} == {"torch-cpu", "torch-cuda"}


def test_file_changed_during_publishing_is_refused(registry, tmp_path):
    (tmp_path / "a.so").write_text("new")
    with pytest.raises(RegistryError, match=r"a\.so changed while it was published"):
        registry.add_blob(REPO, sha256("old"), tmp_path / "a.so")


def test_leftovers_of_a_killed_writer_are_removed(registry):
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
    others = registry.link_root(REPO) / "refs" / "tmp-x"
    others.write_text("a branch of another tool")
    publish_file(registry, "v1.0.1", "text")
    assert not any(leftover.exists() for leftover in leftovers)
    assert others.exists()


@pytest.mark.parametrize("name", ["tmp-x", "a/tmp-x", "/v1", "a//b", "../v1", ".hidden", "a b", ""])
def test_invalid_reference_name_is_refused(registry, name):
    commit = publish_file(registry, "v1.0.0", "text")
    with pytest.raises(RequestError, match="is not the name of a branch, a tag or a commit"):
        registry.set_ref(REPO, name, commit)
    assert registry.ref(REPO, name) is None
    with pytest.raises(RequestError):
        request(REPO, revision=name)


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")])
def test_endless_document_is_refused(registry, put):
    commit = publish_file(registry, "v1.0.0", "text")
    for path, ask in (
        (registry.fetch(REPO, commit, "torch-cpu") / "metadata.json", registry.metadata),
        (registry.link_root(REPO) / "refs/v1", lambda *_: registry.ref(REPO, "v1")),
    ):
        path.unlink(missing_ok=True)
        put(path)
        with pytest.raises(IntegrityError, match=r"is not a file of at most|is a link that leaves"):
            ask(REPO, commit, "torch-cpu")


def test_branches_with_a_slash_are_listed(registry):
    commit = publish_file(registry, "v1.0.0", "text")
    registry.set_ref(REPO, "team/dev", commit)
    assert "team/dev" in registry.refs(REPO)
    assert commit_of(registry, REPO, revision="team/dev") == commit


def test_malformed_reference_is_an_error(registry):
    publish_file(registry, "v1.0.0", "text")
    (registry.link_root(REPO) / "refs/v1").write_text("oops")
    with pytest.raises(RegistryError, match="holds 'oops'"):
        registry.ref(REPO, "v1")


@pytest.mark.parametrize(
    "repo_id", ["toy", "a/b/c", "../x", "a/..", "a/b--c", "a/.b", "/b", "a/", "-a/b", "a b/c"]
)
def test_path_traversal_by_repo_id_is_refused(registry, repo_id):
    with pytest.raises(UsageError, match="is not a repo id"):
        registry.ref(repo_id, "v1")
