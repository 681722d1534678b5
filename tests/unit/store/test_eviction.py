# SPDX-License-Identifier: Apache-2.0
import os
import time

import pytest

from kernforge.errors import UsageError
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.environment import Environment

NOW = time.time()


def key(number):
    return f"{number:02x}" + "0" * 62


def put(store, number, *, age_s, kb=64, kind="actions"):
    def fill(tree):
        files.write_new(tree / "content", b"x" * (kb * 1024))

    path = store.tree(kind, key(number), fill)
    os.utime(store.mark(kind, key(number)), (NOW - age_s,) * 2)
    return path


def there(store):
    return sorted(int(e.path.name[:2], 16) for e in eviction.entries(store))


def test_the_least_recently_used_go_first(tmp_path):
    store = Store(tmp_path)
    for number, age, kind in ((1, 300, "toolchains"), (2, 100, "actions"), (3, 200, "actions")):
        put(store, number, age_s=age, kind=kind)
    os.utime(store.path("actions", key(2)), (0, 0))  # the time of a tree itself says nothing
    removed = eviction.trim(store, 2 * 64 * 1024)
    assert [entry.size for entry in removed] == [64 * 1024]
    assert there(store) == [2, 3]
    store.use("actions", key(3))
    eviction.trim(store, 64 * 1024)
    assert there(store) == [3]


def test_the_limit_has_a_unit():
    for text, size in (("20GB", 20 * 10**9), ("1.5GiB", 3 * 2**29), ("7B", 7)):
        assert eviction.limit(Environment({"KERNFORGE_STORE_SIZE": text})) == size
    with pytest.raises(UsageError, match="KERNFORGE_STORE_SIZE: 'much' is not a size"):
        eviction.limit(Environment({"KERNFORGE_STORE_SIZE": "much"}))


def test_a_build_removes_nothing_that_was_used_within_a_day(tmp_path):
    store = Store(tmp_path)
    for number, age in ((1, 2 * 86400), (2, 3600)):
        put(store, number, age_s=age)
    eviction.keep(store, 0)
    assert there(store) == [2]


def test_nothing_of_others_is_removed(tmp_path):
    store = Store(tmp_path / "home" / "store")
    put(store, 1, age_s=2 * 86400)
    theirs = [
        store.root / "actions" / "01" / "notes",
        store.root / "actions" / "01" / ("0" * 63 + "x"),
        store.root / "actions" / "02" / key(3),
        store.root / "locks" / "my-notes",
        store.root / "leases" / "mine",
        tmp_path / "home" / "environments" / "torch-of-mine" / "file",
    ]
    for path in theirs:
        files.write_new(path, "mine")
        os.utime(path, (0, 0))
    eviction.trim(store, 0)
    assert there(store) == []
    assert all(path.read_text() == "mine" for path in theirs)


def test_a_shelf_behind_a_link_is_not_ours_to_clear(tmp_path):
    theirs, ours = Store(tmp_path / "theirs"), Store(tmp_path / "ours")
    put(theirs, 1, age_s=300, kind="toolchains")
    ours.root.mkdir()
    (ours.root / "toolchains").symlink_to(theirs.root / "toolchains")
    eviction.trim(ours, 0)
    assert there(theirs) == [1]


def test_old_locks_go_and_held_ones_stay(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2):
        put(store, number, age_s=0)
        os.utime(tmp_path / "locks" / f"actions-{key(number)}", (NOW - 2 * 86400,) * 2)
    with files.locked(tmp_path / "locks" / f"actions-{key(1)}"):
        eviction.trim(store, 0)
    assert [p.name for p in (tmp_path / "locks").glob("actions-*")] == [f"actions-{key(1)}"]


def test_who_builds_often_looks_at_the_store_seldom(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2):
        put(store, number, age_s=2 * 86400)
        eviction.keep(store, 0)
    assert there(store) == [2]
    os.utime(tmp_path / "trimmed", (0, 0))
    eviction.keep(store, 0)
    assert there(store) == []
