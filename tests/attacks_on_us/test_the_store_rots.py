# SPDX-License-Identifier: Apache-2.0
"""The disk under the store loses bits, and a crash leaves files empty or cut off (A10).

Whatever is damaged, and however: nothing of it gets into an artifact, the build says in one line what
was damaged, makes it again and ends well.
"""

import hashlib
import json
import os
import shutil
import time

import pytest
from support import graphs, projects
from support.wheel_maker import make_wheel

from kernforge.build import workspace
from kernforge.build.execute import results
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import IntegrityError
from kernforge.store import records
from kernforge.store.local import Store
from kernforge.store.remote import SharedStore
from kernforge.store.verify import verify
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, lockfile
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.trust.builders import Builders

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
    """Run both actions as another process would; what is the result, how many ran, what was said."""
    notes = []
    context = graphs.context(root)
    context.store.note = notes.append
    outcome, _ = graphs.go(root, FIRST, LAST, context=context)
    assert outcome.failures == ()
    out = context.store.path(STORE_KIND, LAST.key) / "out"
    return out.read_text(), outcome.ran, notes


@pytest.mark.parametrize("name", ["out", results.FILE, "the record"])
def test_a_damaged_result_is_made_again(made, rot, name):
    tree = Store(made).path(STORE_KIND, LAST.key)
    victim = records.path(tree) if name == "the record" else tree / name
    rot(victim)
    if name == "the record" and rot is ROT["not executable"]:
        pytest.skip("a record is never executable: its mode says nothing")
    text, ran, notes = again(made)
    assert (text, ran) == ("objectlinked", 1)
    (note,) = notes
    assert f"actions/{LAST.key[:12]} was damaged, and is made again: " in note
    assert again(made) == ("objectlinked", 0, [])


def test_a_damaged_result_that_a_missing_one_needs_is_made_again(made, rot):
    store = Store(made)
    store.forget(STORE_KIND, LAST.key)
    rot(store.path(STORE_KIND, FIRST.key) / "out")
    text, ran, notes = again(made)
    assert (text, ran, len(notes)) == ("objectlinked", 2, 1)


def test_all_of_them_are_damaged(made):
    for action in (FIRST, LAST):
        flip(Store(made).path(STORE_KIND, action.key) / "out")
    text, ran, notes = again(made)
    assert (text, ran, len(notes)) == ("objectlinked", 2, 2)


def test_what_was_added_to_a_result_is_damage(made):
    (Store(made).path(STORE_KIND, LAST.key) / "more").write_text("x")
    text, ran, notes = again(made)
    assert (text, ran) == ("objectlinked", 1)
    assert "more was not there" in notes[0]


def test_a_result_that_became_a_file_is_made_again(made):
    be_another(Store(made).path(STORE_KIND, LAST.key), lambda p: p.write_bytes(b""))
    assert again(made)[:2] == ("objectlinked", 1)


def test_a_result_that_changes_while_it_is_copied_gets_nowhere(made, tmp_path):
    store = Store(made)
    assert store.use(STORE_KIND, LAST.key)
    flip(store.path(STORE_KIND, LAST.key) / "out")  # after the look
    with pytest.raises(IntegrityError, match="it is not what was made"):
        results.copy_output(store, LAST.key, "out", tmp_path / "copy")
    assert again(made)[:2] == ("objectlinked", 1)


def test_a_crash_before_the_data_reached_the_disk(made):
    """As some file systems leave it: every name is there, every file is empty."""
    for path in made.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    text, ran, _ = again(made)
    assert (text, ran) == ("objectlinked", 2)


def test_results_of_a_kernforge_without_records_are_taken_over(made):
    """They are recorded as they are when they are first used; from then on their damage is seen."""
    for path in made.glob("actions/??/*.record"):
        path.unlink()
    (made / "recorded").unlink()
    assert again(made) == ("objectlinked", 0, [])
    tree = Store(made).path(STORE_KIND, LAST.key)
    assert records.path(tree).is_file()
    flip(tree / "out")
    assert again(made)[:2] == ("objectlinked", 1)


# -- what a lock names: trees of many files --------------------------------------------------------

KEY = "cd" + "0" * 62
MANY = 300  # so many that they are not all read at each use


def fill(tree):
    for number in range(MANY):
        files.write_new(tree / "include" / f"{number}.h", f"#define N {number}\n")
    files.symlink("include", tree / "link")


def use(root):
    """Ask for the tree as another process would; what is said."""
    notes, store = [], Store(root)
    store.note = notes.append
    tree = store.tree("toolchains", KEY, fill, whole=False)
    assert (tree / "include" / "7.h").read_text() == "#define N 7\n"
    assert (tree / "link" / "7.h").is_file()
    return notes


def test_a_damaged_header_is_made_again(tmp_path, rot):
    assert use(tmp_path) == use(tmp_path) == []
    rot(Store(tmp_path).path("toolchains", KEY) / "include" / "7.h")
    (note,) = use(tmp_path)
    assert f"toolchains/{KEY[:12]} was damaged, and is made again: include/7.h " in note
    assert use(tmp_path) == []


@pytest.mark.parametrize("kind", [name for name in ROT if name != "not executable"])
def test_the_damaged_record_of_a_toolchain(tmp_path, kind):
    assert use(tmp_path) == use(tmp_path) == []
    ROT[kind](records.path(Store(tmp_path).path("toolchains", KEY)))
    assert len(use(tmp_path)) == 1
    assert use(tmp_path) == []


def test_a_link_of_a_toolchain_leads_elsewhere(tmp_path):
    assert use(tmp_path) == use(tmp_path) == []
    be_another(Store(tmp_path).path("toolchains", KEY) / "link", lambda p: p.symlink_to("/usr"))
    assert len(use(tmp_path)) == 1


def test_bits_that_change_without_a_trace_are_seen_within_a_day(tmp_path):
    """The medium itself changes what it holds: no time of the file tells. So all is read once a day."""
    assert use(tmp_path) == use(tmp_path) == []
    store = Store(tmp_path)
    tree = store.path("toolchains", KEY)
    (seen,) = (tmp_path / "seen").iterdir()
    (tree / "include" / "8.h").write_text("#define N 9\n")
    seen.write_text(records._fingerprint(tree))  # as if the times were those of before
    assert use(tmp_path) == []
    os.utime(seen, (time.time() - 25 * 3600,) * 2)
    assert "include/8.h has other bytes" in use(tmp_path)[0]


def test_the_whole_tree_is_read_after_a_start_of_the_machine(tmp_path, monkeypatch):
    assert use(tmp_path) == use(tmp_path) == []
    tree = Store(tmp_path).path("toolchains", KEY)
    (seen,) = (tmp_path / "seen").iterdir()
    (tree / "include" / "8.h").write_text("#define N 9\n")
    seen.write_text(records._fingerprint(tree))
    boot = tmp_path / "boot_id"
    boot.write_text("another start")
    monkeypatch.setattr(records, "_BOOT", boot)
    assert "include/8.h has other bytes" in use(tmp_path)[0]


@pytest.mark.parametrize("kind", [name for name in ROT if name != "not executable"])
def test_the_note_of_the_last_look_is_damaged(tmp_path, kind):
    assert use(tmp_path) == use(tmp_path) == []
    (seen,) = (tmp_path / "seen").iterdir()
    ROT[kind](seen)
    assert use(tmp_path) == []


# -- what was remembered of the machine, and what was downloaded -----------------------------------


def test_what_was_remembered_of_the_compiler_is_damaged(tmp_path, rot):
    compiler = host_compiler.find(dict(os.environ), run)
    first = host_compiler.locked(compiler, run, tmp_path)
    (note,) = tmp_path.iterdir()
    rot(note)
    assert host_compiler.locked(compiler, run, tmp_path) == first


@pytest.mark.parametrize("kind", [n for n in ROT if n not in {"a link", "a directory", "missing"}])
def test_what_was_downloaded_before_an_interruption_is_damaged(
    index_server, transport, progress, tmp_path, kind
):
    members = {"toy/noise": hashlib.shake_256(b"x").digest(100_000)}
    wheel = make_wheel(index_server.root / "toy-1-py3-none-any.whl", members)
    index_server.add(wheel)
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    part = tmp_path / f"{sha256}-{wheel.name}.part"
    part.write_bytes(wheel.read_bytes()[:60_000])
    ROT[kind](part)
    wheels = Wheels(lambda: Index(index_server.config, transport), tmp_path, progress)
    assert dict(wheels.whole(wheel.name, sha256).fetch(members)) == members
    spoilt = kind in {"a flipped bit", "zeros", "too long"}
    assert any("from the beginning" in note for note in progress.notes) == spoilt


# -- kernforge cache --verify ----------------------------------------------------------------------


def test_verify_names_what_is_damaged_and_repair_removes_it(kernforge_cli, made, tmp_path):
    home = tmp_path
    done = kernforge_cli("cache", "--verify", "--json", home=home)
    assert json.loads(done.stdout)["damaged"] == []
    assert json.loads(done.stdout)["trees"] == 2
    flip(Store(made).path(STORE_KIND, LAST.key) / "out")
    done = kernforge_cli("cache", "--verify", "--json", home=home, expect=9)
    document = json.loads(done.stdout)
    assert document["error"] == "IntegrityError"
    assert [(one["key"], one["problem"]) for one in document["damaged"]] == [
        (LAST.key, "out has other bytes")
    ]
    text = kernforge_cli("cache", "--verify", home=home, expect=9)
    assert f"actions/{LAST.key[:12]}: out has other bytes" in text.stdout
    assert "--repair" in text.stderr
    assert Store(made).has(STORE_KIND, LAST.key)
    text = kernforge_cli("cache", "--verify", "--repair", home=home)
    assert "removed 1" in text.stdout
    assert not Store(made).has(STORE_KIND, LAST.key)
    assert "all as they were made" in kernforge_cli("cache", "--verify", home=home).stdout
    assert again(made)[:2] == ("objectlinked", 1)


def test_repair_alone_is_refused(kernforge_cli, tmp_path):
    done = kernforge_cli("cache", "--repair", home=tmp_path, expect=2)
    assert "--verify --repair" in done.stderr


@pytest.mark.parametrize("kind", ROT)
def test_verify_sees_every_kind_of_rot(made, kind):
    tree = Store(made).path(STORE_KIND, FIRST.key)
    ROT[kind](tree / "out")
    found = verify(Store(made), repair=False)
    assert [one.key for one in found.damaged] == [FIRST.key]


# -- a real build ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(kernforge_cli, kept_home, tmp_path_factory):
    """A home of its own with a built project, and a shared store that has its toolchain alone."""
    place = tmp_path_factory.mktemp("rot")
    root = projects.write(place / "project")
    kernforge_cli("build", root, "--variant", CPU)  # the toolchain is in the kept store now
    home, far = place / "home", f"file://{place}/far"
    kept, own = Store(kept_home / "store"), Store(home / "store")
    second = SharedStore(far, print, Builders(everyone=True))
    for torch in workspace.read_lock(root).torch.values():
        key = lockfile.wheel_headers_key(torch.wheel)
        tree = kept.path("toolchains", key)
        if tree.is_dir():
            assert second.push("toolchains", key, tree)
            # Copies and not links: they are damaged here.
            copy = shutil.copytree(tree, own.path("toolchains", key), symlinks=True)
            records.write(records.read_tree(copy), records.path(copy))
    kernforge_cli("build", root, "--variant", CPU, home=home)
    return root, home, far


def artifact(root):
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((root / "build" / CPU).rglob("*"))
        if path.is_file()
    }


def rebuilt(kernforge_cli, built, **env):
    """Build again: how many actions ran, and the lines that say what was damaged."""
    root, home, _ = built
    before = artifact(root)
    shutil.rmtree(root / "build")
    done = kernforge_cli("build", root, "--variant", CPU, "--json", home=home, env=env)
    assert artifact(root) == before
    lines = [line for line in done.stderr.splitlines() if "was damaged" in line]
    return json.loads(done.stdout)["actions"]["ran"], lines


@pytest.mark.native
@pytest.mark.parametrize("pattern", ["*.abi3.so", results.FILE])
def test_a_build_makes_a_damaged_extension_again(kernforge_cli, built, rot, pattern):
    _, home, _ = built
    (link,) = (home / "store" / "actions").glob("??/*/*.abi3.so")
    rot(next(link.parent.glob(pattern)))
    ran, lines = rebuilt(kernforge_cli, built)
    assert ran == 1
    assert len(lines) == 1
    assert rebuilt(kernforge_cli, built) == (0, [])


@pytest.mark.native
def test_a_build_makes_a_damaged_object_again(kernforge_cli, built):
    _, home, _ = built
    (link,) = (home / "store" / "actions").glob("??/*/*.abi3.so")
    objects = [
        path
        for path in (home / "store" / "actions").glob("??/*/*.o")
        if b"times_two_cpu" in path.read_bytes() and path.stat().st_size < 5_000
    ]
    Store(home / "store").forget(STORE_KIND, link.parent.name)
    flip(objects[0])
    ran, lines = rebuilt(kernforge_cli, built)
    assert ran == 2
    assert len(lines) == 1


@pytest.mark.native
def test_a_build_checks_again_where_the_findings_are_damaged(kernforge_cli, built):
    _, home, _ = built
    rebuilt(kernforge_cli, built)
    for path in (home / "store" / "findings").glob("??/*/findings.json"):
        flip(path)
    ran, lines = rebuilt(kernforge_cli, built)
    assert ran == 0
    assert len(lines) == 1


@pytest.mark.native
def test_a_build_gets_a_damaged_toolchain_again(kernforge_cli, built):
    root, home, far = built
    before = artifact(root)
    for header in (home / "store" / "toolchains").glob("??/*/include/torch/csrc/stable/library.h"):
        flip(header)
    shutil.rmtree(home / "store" / "actions")
    # "Made again" is: brought from the shared store, which has the toolchain and no results.
    env = {"KERNFORGE_SHARED_STORE": far, "KERNFORGE_STORE_TRUST": "all-writers"}
    done = kernforge_cli("build", root, "--variant", CPU, "--json", home=home, env=env)
    assert json.loads(done.stdout)["actions"]["ran"] > 5
    (line,) = [line for line in done.stderr.splitlines() if "was damaged" in line]
    assert "toolchains/" in line
    assert "include/torch/csrc/stable/library.h has other bytes" in line
    assert artifact(root) == before
    assert "all as they were made" in kernforge_cli("cache", "--verify", home=home).stdout
