# SPDX-License-Identifier: Apache-2.0
"""The local store, and the shared one: whatever is wrong with that, the build goes on."""

import io
import os
import time
import uuid

import pytest

from kernforge.errors import StorageError, UsageError
from kernforge.store import tree_archive
from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.system import files
from kernforge.trust.signing import Builders

EVERYONE = Builders(everyone=True)
KEY = "ab" + "0" * 62


def fill_with(text, calls=None):
    def fill(tree):
        if calls is not None:
            calls.append(text)
        files.write_new(tree / "content", text)

    return fill


def test_a_tree_is_made_once_until_forgotten(tmp_path):
    store = Store(tmp_path)
    first = store.tree("things", KEY, fill_with("one"))
    assert store.tree("things", KEY, fill_with("two")) == first
    assert (first / "content").read_text() == "one"
    store.forget("things", KEY)
    store.forget("things", KEY)
    assert not store.has("things", KEY)
    assert (store.tree("things", KEY, fill_with("two")) / "content").read_text() == "two"


def test_nothing_is_stored_when_making_it_fails(tmp_path):
    store = Store(tmp_path)

    def fail(tree):
        files.write_new(tree / "half", "half")
        raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        store.tree("things", KEY, fail)
    assert not store.has("things", KEY)
    assert not list(tmp_path.rglob("half"))
    assert (store.tree("things", KEY, fill_with("one")) / "content").read_text() == "one"


def test_old_leavings_are_swept_and_nothing_else(tmp_path):
    shelf = tmp_path / "things" / KEY[:2]
    ours = "tmp-kernforge-"
    for name, age in ((f"{ours}old_4567", 3), (f"{ours}young567", 0), (f"{ours}mine", 3)):
        (shelf / name).mkdir(parents=True)
        os.utime(shelf / name, times=(time.time() - age * 86400,) * 2)
    (shelf / f"{ours}link_567").symlink_to(tmp_path)
    Store(tmp_path).tree("things", KEY, fill_with("one"))
    left = [f"{ours}link_567", f"{ours}mine", f"{ours}young567"]
    assert sorted(p.name for p in shelf.glob("tmp-*")) == left


def test_a_full_disk_is_a_storage_error_with_a_hint(tmp_path):
    def fill(tree):
        with files.disk_errors(f"writing {tree}"):
            raise OSError(28, "No space left on device")

    with pytest.raises(StorageError) as caught:
        Store(tmp_path).tree("things", KEY, fill)
    assert "KERNFORGE_HOME" in caught.value.hint


def test_replacing_a_tree_leaves_no_trace_of_the_old_one(tmp_path):
    final = tmp_path / "final"
    for text in ("one", "two"):
        with files.staging(tmp_path) as staged:
            files.write_new(staged / "new" / text, text)
            files.replace_tree(staged / "new", final)
    assert [p.name for p in final.iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["final"]


# -- the shared store ----------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def url(request, tmp_path):
    return f"file://{tmp_path}/far" if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def make(root, url, text, *, kind="actions"):
    """Ask a store on another machine for the tree; returns its text, whether made, and notes."""
    calls, notes = [], []
    tree = Store(root, SharedStore(url, notes.append, EVERYONE)).tree(
        kind, KEY, fill_with(text, calls)
    )
    return (tree / "content").read_text(), bool(calls), notes


def test_a_store_that_cannot_be_reached_is_named_once(tmp_path):
    (tmp_path / "far").write_text("a file where a directory should be")
    url = f"file://{tmp_path}/far"
    notes = []
    store = Store(tmp_path / "a", SharedStore(url, notes.append, EVERYONE))
    for number in range(3):
        store.tree("actions", f"{number}b" + "0" * 62, fill_with("one"))
    assert 1 <= len(notes) <= 2
    assert url in notes[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_store_that_may_only_be_read_still_serves(tmp_path):
    url = f"file://{tmp_path}/far"
    make(tmp_path / "a", url, "one")
    for path in (tmp_path / "far").rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    assert make(tmp_path / "b", url, "two") == ("one", False, [])


def test_a_url_that_nobody_knows_is_a_usage_error():
    with pytest.raises(UsageError, match="cannot be a shared store"):
        SharedStore("nosuch://x", print, EVERYONE)


def test_pulling_never_makes(tmp_path, url):
    store = Store(tmp_path / "b", SharedStore(url, print, EVERYONE))
    assert not store.bring("actions", KEY)
    make(tmp_path / "a", url, "one")
    assert store.bring("actions", KEY)
    assert store.fetched == {KEY}


def test_what_a_store_does_not_accept_is_made_here_and_replaced_there(tmp_path, url):
    make(tmp_path / "a", url, "one")
    store, calls = Store(tmp_path / "b", SharedStore(url, print, EVERYONE)), []
    store.accepts = lambda kind, tree: (kind, (tree / "content").read_text()) != ("actions", "one")
    assert not store.bring("actions", KEY)
    assert (store.tree("actions", KEY, fill_with("two", calls)) / "content").read_text() == "two"
    assert (calls, store.fetched) == (["two"], set())
    assert make(tmp_path / "c", url, "three") == ("two", False, [])


def fill_tree(root, order=("b", "a")):
    for name in order:
        (root / name).mkdir(parents=True)
        (root / name / "data").write_bytes(name.encode() * 3_000_000)
    (root / "run").write_text("#!/bin/sh\n")
    (root / "run").chmod(0o755)
    (root / "lib64").symlink_to("a")
    return root


def packed(root):
    out = io.BytesIO()
    tree_archive.pack(root, out)
    return out.getvalue()


def test_a_packed_tree_is_unpacked_alike(tmp_path):
    data = packed(fill_tree(tmp_path / "one"))
    tree_archive.unpack(io.BytesIO(data), tmp_path / "two")
    two = tmp_path / "two"
    assert (two / "b" / "data").read_bytes() == b"b" * 3_000_000
    assert os.access(two / "run", os.X_OK)
    assert not os.access(two / "a" / "data", os.X_OK)
    assert (two / "lib64").readlink().name == "a"


def test_packing_is_reproducible(tmp_path):
    one, two = fill_tree(tmp_path / "one"), fill_tree(tmp_path / "two", order=("a", "b"))
    os.utime(two / "run", (0, 0))
    (two / "run").chmod(0o700)
    assert packed(one) == packed(two)
