# SPDX-License-Identifier: Apache-2.0
"""A process is killed (SIGKILL) at any moment: the next run finds nothing half.

In the store with its shared level, and in the directory of a lock file. A registry is killed in
``tests/unit/publish`` and ``tests/unit/application``, a download of a hub in ``tests/e2e``.
"""

import itertools
import multiprocessing
import os
import random
import signal
import time

import pytest

from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.system import files
from kernforge.trust.signing import Builders

KILLS = int(os.environ.get("KERNFORGE_TEST_KILLS", "15"))


def store(place):
    shared = SharedStore((place / "shared").as_uri(), print, Builders(everyone=True))
    return Store(place / "store", shared)


def fill(tree):
    for number in range(20):
        files.write_new(tree / f"{number}" / "file", bytes(20_000))


def write_store(place):
    """Trees, one after the other."""
    for number in itertools.count():
        found = store(place)
        found.tree("things", f"{number % 50:064x}", fill)
        found.forget("things", f"{(number - 25) % 50:064x}")


def write_lock(place):
    """A lock file beside others."""
    for number in itertools.count():
        for name in ("kernforge.lock", "kernels.lock"):
            files.write_atomic(place / "project" / name, f"{number}\n" * 20_000)


def leavings(place):
    """What no finished run leaves."""
    found = [p for p in place.rglob("*tmp-*") if "locks" not in p.parts]
    return [p for p in found if not any("tmp-" in q.name for q in p.parents if q != place)]


def killed(work, place, number):
    """Start the work, and kill it after a moment that differs each time."""
    process = multiprocessing.get_context("fork").Process(target=work, args=(place,), daemon=True)
    process.start()
    time.sleep(random.Random(number).uniform(0.02, 0.3))
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.exitcode


def finish_store(place):
    found = store(place)
    for key in [f"{number:064x}" for number in range(50)]:
        tree = found.tree("things", key, fill)
        found.forget("things", key)
        tree = found.tree("things", key, fill)
        assert [path.stat().st_size for path in sorted(tree.rglob("file"))] == [20_000] * 20


def finish_lock(place):
    for name in ("kernforge.lock", "kernels.lock"):
        path = place / "project" / name
        if path.exists():
            assert len(set(path.read_text().split())) == 1
        files.write_atomic(path, "done\n")


PLACES = {
    "store": (write_store, finish_store),
    "lock": (write_lock, finish_lock),
}


@pytest.mark.parametrize(("work", "finish"), PLACES.values(), ids=PLACES)
def test_the_next_run_finds_nothing_half(tmp_path, work, finish):
    for number in range(KILLS):
        assert killed(work, tmp_path, number) == -signal.SIGKILL
    finish(tmp_path)
    found = [p for p in leavings(tmp_path) if ".tree.tmp-" not in p.name]
    assert all(p.name.startswith("tmp-kernforge-") for p in found), "of these the next runs know"


def test_what_a_living_process_holds_is_not_swept(tmp_path):
    with files.staging(tmp_path) as mine:
        (mine / "file").write_text("mine")
        with files.staging(tmp_path):
            pass
        files.sweep(tmp_path)
        assert (mine / "file").read_text() == "mine"


def test_what_a_killed_writer_of_a_shared_store_left_goes_after_a_day(tmp_path):
    found = store(tmp_path)
    found.tree("things", "0" * 64, fill)
    (shelf,) = {path.parent for path in (tmp_path / "shared").rglob("*.tree")}
    for name, age in (("old", 2 * 86400), ("young", 60)):
        path = shelf / f"{'0' * 63}1.tree.tmp-{name}"
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    found.forget("things", "0" * 64)
    found.shared.push("things", "0" * 64, found.tree("things", "0" * 64, fill))
    assert [path.name[-5:] for path in shelf.glob("*.tmp-*")] == ["young"]


def test_many_processes_write_one_file(tmp_path):
    """The name of the temporary file follows from that of the file, so writers meet."""
    target = tmp_path / "kernels.lock"
    context = multiprocessing.get_context("fork")

    def write(number):
        for turn in range(100):
            files.write_atomic(target, f"{number}-{turn}\n" * 1000)
            assert len(set(target.read_text().split())) == 1

    writers = [context.Process(target=write, args=(number,)) for number in range(12)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 12
    assert [path.name for path in tmp_path.iterdir()] == ["kernels.lock"]
