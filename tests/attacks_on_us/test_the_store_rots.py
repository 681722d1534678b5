# SPDX-License-Identifier: Apache-2.0
"""The disk under the store loses bits, and a crash leaves files empty or cut off (A10).

Whatever is damaged, and however: nothing of it gets into an artifact, the build says in one line
what was damaged, makes it again and ends well.
"""

import json
import os
import shutil

import pytest
from support import graphs, projects

from kernforge.builder import results
from kernforge.builder.results import STORE_KIND
from kernforge.errors import IntegrityError
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import host_compiler

CPU = "torch-stable-abi210-cpu-x86_64-linux"


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def be_another(path, make):
    files.remove_tree(path)
    make(path)


ROT = {
    "a flipped bit": flip,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "missing": lambda path: path.unlink(),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "a link": lambda path: be_another(path, lambda p: p.symlink_to("/etc/hostname")),
    "a directory": lambda path: be_another(path, lambda p: p.mkdir()),
    "not executable": lambda path: path.chmod(path.stat().st_mode ^ 0o100),
}


@pytest.fixture(params=ROT.values(), ids=ROT)
def rot(request):
    return request.param


# -- small actions, every kind of rot in every file of a result and its record ---------------------

FIRST = graphs.action("compile", "printf object > out; echo warned")
LAST = graphs.action("link", "cat in/0 > out; printf linked >> out", needs=[FIRST])


@pytest.fixture
def made(tmp_path):
    """A store with two results."""
    outcome, _ = graphs.go(tmp_path / "store", FIRST, LAST)
    assert outcome.ran == 2
    return tmp_path / "store"


def again(root):
    """Result, number of runs and notes of both actions, run as another process would."""
    notes = []
    context = graphs.context(root)
    context.store.note = notes.append
    outcome, _ = graphs.go(root, FIRST, LAST, context=context)
    assert outcome.failures == ()
    out = context.store.path(STORE_KIND, LAST.key) / "out"
    return out.read_text(), outcome.ran, notes


@pytest.mark.parametrize("name", ["out", results.FILE])
def test_a_damaged_result_is_made_again(made, rot, name):
    if rot is ROT["not executable"]:
        pytest.skip("the bytes are what counts")
    rot(Store(made).path(STORE_KIND, LAST.key) / name)
    text, ran, notes = again(made)
    assert (text, ran) == ("objectlinked", 1)
    (note,) = notes
    assert f"actions/{LAST.key[:12]} was corrupt: it is evicted and made again" in note
    assert again(made) == ("objectlinked", 0, [])


def test_a_damaged_result_that_a_missing_one_needs_is_made_again(made):
    store = Store(made)
    store.forget(STORE_KIND, LAST.key)
    flip(store.path(STORE_KIND, FIRST.key) / "out")
    text, ran, notes = again(made)
    assert (text, ran, len(notes)) == ("objectlinked", 2, 1)


def test_a_result_that_changes_while_it_is_copied_gets_nowhere(made, tmp_path):
    store = Store(made)
    assert store.use(STORE_KIND, LAST.key)
    flip(store.path(STORE_KIND, LAST.key) / "out")  # after the look
    with pytest.raises(IntegrityError, match="is not the recorded one"):
        results.copy_output(store, LAST.key, "out", tmp_path / "copy")
    assert again(made)[:2] == ("objectlinked", 1)


def test_a_crash_before_the_data_reached_the_disk(made):
    """As some file systems leave it: every name is there, every file is empty."""
    for path in made.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    text, ran, _ = again(made)
    assert (text, ran) == ("objectlinked", 2)


# -- what was remembered of the machine, and what was downloaded -----------------------------------


@pytest.mark.parametrize("kind", ["empty", "zeros", "missing", "cut off"])
def test_what_was_remembered_of_the_compiler_is_damaged(tmp_path, kind):
    compiler = host_compiler.find(dict(os.environ), run)
    first = host_compiler.locked(compiler, run, tmp_path)
    (note,) = tmp_path.iterdir()
    ROT[kind](note)
    assert host_compiler.locked(compiler, run, tmp_path) == first


# -- a real build ----------------------------------------------------------------------------------


@pytest.mark.native
def test_a_build_makes_a_damaged_extension_again(kernforge_cli, kept_home, tmp_path):
    root, home = projects.write(tmp_path / "project"), tmp_path / "home"
    (home / "store").mkdir(parents=True)
    (home / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    seen = []
    for damaged in (False, True, False):
        if damaged:
            (library,) = (home / "store" / "actions").glob("??/*/*.abi3.so")
            flip(library)
        done = kernforge_cli("build", root, "--variant", CPU, "--json", home=home)
        found = sorted(path for path in (root / "build" / CPU).rglob("*") if path.is_file())
        ran = json.loads(done.stdout)["actions"]["ran"]
        seen.append((ran, done.stderr.count("was corrupt"), [p.read_bytes() for p in found]))
        shutil.rmtree(root / "build")
    (_, before, first), *later = seen
    assert (before, later) == (0, [(1, 1, first), (0, 0, first)])
