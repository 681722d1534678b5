# SPDX-License-Identifier: Apache-2.0
import os
import signal
import subprocess
import sys
import time

import pytest
from support import processes

from kernforge.errors import UsageError
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.environment import Environment

NOW = time.time()
LEASED = """
import sys, time
from pathlib import Path
from kernforge.store.local import Store
store = Store(Path(sys.argv[1]))
with store.lease():
    store.use("actions", sys.argv[2])
    print("using", flush=True)
    time.sleep(60)
"""


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
    for number, age in ((1, 300), (2, 100), (3, 200)):
        put(store, number, age_s=age)
    removed = eviction.trim(store, 2 * 64 * 1024)
    assert (removed.entries, removed.size, removed.kept) == (1, 64 * 1024, 0)
    assert there(store) == [2, 3]


def test_use_makes_young(tmp_path):
    store = Store(tmp_path)
    for number, age in ((1, 300), (2, 100)):
        put(store, number, age_s=age)
    store.use("actions", key(1))
    eviction.trim(store, 64 * 1024)
    assert there(store) == [1]


def test_toolchains_and_results_are_one_queue(tmp_path):
    store = Store(tmp_path)
    put(store, 1, age_s=300, kind="toolchains")
    put(store, 2, age_s=100)
    eviction.trim(store, 64 * 1024)
    assert there(store) == [2]


def test_what_a_running_build_uses_stays_until_the_build_dies(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2):
        put(store, number, age_s=300)
    argv = [sys.executable, "-c", LEASED, str(tmp_path), key(1)]
    with processes.start(argv, stdout=subprocess.PIPE) as build:
        assert build.stdout.readline() == b"using\n"
        removed = eviction.trim(store, 0)
        assert (removed.entries, removed.kept) == (1, 1)
        assert there(store) == [1]
        os.kill(build.pid, signal.SIGKILL)
    assert eviction.trim(store, 0).entries == 1
    assert there(store) == []


def test_the_time_of_a_tree_itself_says_nothing(tmp_path):
    store = Store(tmp_path)
    os.utime(put(store, 1, age_s=100), (0, 0))
    put(store, 2, age_s=200)
    eviction.trim(store, 64 * 1024)
    assert there(store) == [1]


def test_clearing_takes_one_shelf(tmp_path):
    store = Store(tmp_path)
    put(store, 1, age_s=0, kind="toolchains")
    put(store, 2, age_s=0)
    assert eviction.clear(store, "actions").entries == 1
    assert there(store) == [1]
    with pytest.raises(UsageError, match="no entries of kind 'things'"):
        eviction.clear(store, "things")


def put_environment(store, name, *, age_s, kb=64):
    path = store.root.parent / "environments" / name
    files.write_new(path / "lib" / "torch.so", b"x" * (kb * 1024))
    files.write_new(path / eviction.ENVIRONMENT_USED, b"")
    os.utime(path / eviction.ENVIRONMENT_USED, (NOW - age_s,) * 2)
    (path.parent / f"{name}.lock").touch()
    return path


def test_environments_are_listed_and_cleared_apart_from_the_store(tmp_path):
    store = Store(tmp_path / "store")
    put(store, 1, age_s=0)
    path = put_environment(store, "torch2.11-cpu", age_s=50)
    beside = eviction.survey_environments(store)
    assert (beside.entries, beside.size, beside.name) == (1, 64 * 1024, "environments")
    assert beside.oldest == pytest.approx(NOW - 50, abs=1)
    assert "environments" not in {kind.name for kind in eviction.survey(store)}
    assert eviction.clear(store, "environments").entries == 1
    assert list(path.parent.iterdir()) == []
    assert there(store) == [1]


def test_a_user_trims_environments_and_a_build_does_not(tmp_path):
    store = Store(tmp_path / "store")
    put(store, 1, age_s=200)
    old = put_environment(store, "torch2.11-cpu", age_s=300)
    put_environment(store, "torch2.12-cpu", age_s=100)
    eviction.keep(store, 64 * 1024, every_s=0)
    assert old.is_dir()
    assert eviction.trim(store, 128 * 1024).entries == 1
    assert not old.exists()
    assert there(store) == [1]


def test_an_environment_in_use_stays(tmp_path):
    store = Store(tmp_path / "store")
    with store.lease():
        put_environment(store, "torch2.11-cpu", age_s=-3600)  # found by an open shell
        assert eviction.clear(store, "environments").kept == 1
    waiting = put_environment(store, "torch2.12-cpu", age_s=100)
    with files.locked(waiting.with_name("torch2.12-cpu.lock")):  # being made
        removed = eviction.clear(store, "environments")
    assert (removed.entries, removed.kept) == (1, 1)
    assert waiting.is_dir()


def test_a_shelf_behind_a_link_is_not_ours_to_clear(tmp_path):
    theirs, ours = Store(tmp_path / "theirs"), Store(tmp_path / "ours")
    put(theirs, 1, age_s=300, kind="toolchains")
    ours.root.mkdir()
    (ours.root / "toolchains").symlink_to(theirs.root / "toolchains")
    eviction.trim(ours, 0)
    eviction.clear(ours, "toolchains")
    assert there(theirs) == [1]


def test_old_locks_go_and_held_ones_stay(tmp_path):
    store = Store(tmp_path)
    for number in (1, 2):
        put(store, number, age_s=0)
        os.utime(tmp_path / "locks" / f"actions-{key(number)}", (NOW - 2 * 86400,) * 2)
    with files.gate(tmp_path / "locks" / f"actions-{key(1)}", alone=True):
        eviction.trim(store, 0)
    assert [p.name for p in (tmp_path / "locks").glob("actions-*")] == [f"actions-{key(1)}"]


def test_the_survey_adds_up(tmp_path):
    store = Store(tmp_path)
    put(store, 1, age_s=100)
    put(store, 2, age_s=50)
    kinds = {kind.name: kind for kind in eviction.survey(store)}
    assert (kinds["actions"].entries, kinds["actions"].size) == (2, 128 * 1024)
    assert kinds["actions"].oldest == pytest.approx(NOW - 100, abs=1)
    assert kinds["toolchains"].entries == 0


@pytest.mark.parametrize(("text", "size"), [("20GB", 20 * 10**9), ("1.5GiB", 3 * 2**29), ("7B", 7)])
def test_the_limit_is_read_as_people_write_it(text, size):
    assert eviction.limit(Environment({"KERNFORGE_STORE_SIZE": text})) == size


def test_a_limit_that_is_not_a_size_is_a_usage_error():
    with pytest.raises(UsageError, match="KERNFORGE_STORE_SIZE: 'much' is not a size") as caught:
        eviction.limit(Environment({"KERNFORGE_STORE_SIZE": "much"}))
    assert (
        caught.value.hint == "set it to a size with a unit, or unset it: the store then takes 30GB"
    )


def test_who_builds_often_looks_at_the_store_seldom(tmp_path):
    store = Store(tmp_path)
    put(store, 1, age_s=100)
    eviction.keep(store, 0, every_s=60)
    put(store, 2, age_s=100)
    eviction.keep(store, 0, every_s=60)
    assert [entry.path.name for entry in eviction.entries(store)] == [key(2)]
    eviction.keep(store, 0, every_s=0)
    assert not list(eviction.entries(store))
