# SPDX-License-Identifier: Apache-2.0
import os
import time

import pytest

from kernforge.errors import StorageError
from kernforge.store.local import Store
from kernforge.system import files

KEY = "ab" + "0" * 62


def fill_with(text):
    return lambda tree: files.write_new(tree / "content", text)


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
