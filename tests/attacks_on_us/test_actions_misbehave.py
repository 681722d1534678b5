# SPDX-License-Identifier: Apache-2.0
"""A compiler that an attacker wraps takes all time and disk, changes what it was given, or leaves
something else than files where its outputs should be.

Host code neither reads through what it finds there (A2: a private key in the store) nor writes
through it (A1: code into a file that the next Python runs), and an input that is read a second time
is still what the statement names (B7). An action that takes too much is ended, with all that it
started.
"""

import dataclasses
import os
import re
import shlex
import subprocess
import time
import uuid
from pathlib import Path

import pytest
from support import graphs
from support.attacks import SECRET, holds

from kernforge.builder import action as execute_action, sandbox
from kernforge.builder.graph import Input
from kernforge.builder.results import STORE_KIND
from kernforge.system import files


def run(context, script, *, outputs=("out",)):
    action = graphs.action("evil", script, outputs=outputs)
    return action, execute_action.run_action(action, graphs.plan(action), context)


# What an action leaves in the place of `out`; `{secret}` is a file of the host's.
REPLACED = {
    "a link to a key": "ln -s {secret} out",
    "a link through a link": "ln -s {secret} a; ln -s a out",
    "a link to the environment": "ln -s /proc/self/environ out",
    "a device": "ln -s /dev/zero out",
    "a pipe": "mkfifo out",
    "a directory": "mkdir out",
    "its whole directory": "echo x > out; cd ..; mv work gone; ln -s {folder} work",
    "two names": "echo x > out; ln out other",
}


@pytest.mark.parametrize("script", REPLACED.values(), ids=REPLACED)
def test_only_regular_files_come_out(context, secret, script):
    (secret.parent / "out").write_text(SECRET)
    filled = script.format(secret=secret, folder=secret.parent)
    action, done = run(context, filled)
    assert done.failure, "a link was taken for an output"
    assert re.search("/work(/out)? is |did not write out", done.failure.output), done.failure.output
    assert not context.store.has(STORE_KIND, action.key)
    assert not holds(context.store.root / STORE_KIND)


def test_a_directory_on_the_way_to_an_output_may_not_be_a_link(context, secret):
    (secret.parent / "out").write_text(SECRET)
    script = f"rm -rf made; ln -s {secret.parent} made"
    action, done = run(context, script, outputs=("made/out",))
    assert done.failure
    assert "made is a symbolic link" in done.failure.output
    assert not context.store.has(STORE_KIND, action.key)


# What an action plants beside its directory, so that the host writes through it.
PLANTED = ["again.sh", "work/again.sh", "tmp", "roots", "work"]


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_is_written_through_what_a_failed_action_left(context, tmp_path, name):
    target = tmp_path / "site-packages" / "evil.pth"
    target.parent.mkdir()
    target.write_text("untouched")
    plant = f"rm -rf ../{name}; ln -s {target} ../{name}; exit 1"
    for _ in range(2):  # the second one begins in what the first left
        _, done = run(context, plant)
        assert done.failure.returncode == 1
        assert target.read_text() == "untouched"


def test_a_directory_that_cannot_be_removed_is_not_used_again(context, tmp_path):
    """What it closed would be there for the next run to write into."""
    target = tmp_path / "target"
    target.mkdir()
    close = f"cd ..; mkdir -p deep; ln -s {target} deep/tmp; mkfifo pipe; chmod 0 deep; exit 1"
    locked = f"rm -rf ../tmp; ln -s {target} ../tmp; chmod 0 .; chmod 500 ..; exit 1"
    for script in (close, locked):
        action, done = run(context, script)
        assert done.failure.returncode == 1, done.failure.output
        _, again = run(context, script)
        assert again.failure.returncode == 1, again.failure.output
        assert not list(target.iterdir())
        for left in context.work.glob(f"{action.key[:8]}*"):
            if left.is_dir():
                os.chmod(left, 0o700)  # noqa: PTH101
                files.remove_tree(left)


def test_an_action_cannot_change_what_another_made(context):
    """Its inputs come from the store, and another action reads them after it."""
    first = graphs.action("first", "echo right > out")
    tampers = graphs.action(
        "tampers", "chmod +w in/0; echo wrong > in/0; cp in/0 out", needs=(first,)
    )
    for action in (first, tampers):
        done = execute_action.run_action(action, graphs.plan(action), context)
        assert not done.failure, done.failure
    assert (context.store.path(STORE_KIND, first.key) / "out").read_text() == "right\n"


def test_the_script_that_repeats_a_failure_is_out_of_reach(context):
    _, done = run(context, "exit 3")
    script = Path(done.failure.repeat.removeprefix("sh "))
    assert script.is_file()
    inside = [p for p in context.work.iterdir() if p.is_dir()]
    inside += list(sandbox.PLACE.glob("kernforge-*"))
    assert not any(script.is_relative_to(directory) for directory in inside)


# -- inputs ------------------------------------------------------------------------------------

TEXT = "what was reviewed\n"
CHANGES = {
    "write": "echo evil > csrc/a.cpp",
    "append": "echo evil >> csrc/a.cpp",
    "mode": "chmod 666 csrc/a.cpp; echo evil > csrc/a.cpp",
    "replace": "echo evil > x; mv -f x csrc/a.cpp",
    "remove": "rm -f csrc/a.cpp; echo evil > csrc/a.cpp",
    "beside an output": "echo evil > made/b.cpp",
    "replace beside an output": "echo evil > x; mv -f x made/b.cpp",
    "a header that comes first": "echo evil > csrc/first.h",
    "another file for a source": "ln -sf /dev/null csrc/a.cpp",
}
PATHS = ("csrc/a.cpp", "made/b.cpp")


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_input_stays_what_it_was(context, request, change):
    if not context.sandbox.isolates:
        pytest.skip("without a sandbox an action can change whatever its user can")
    read = "cat csrc/a.cpp made/b.cpp > made/out; ls csrc >> made/out"
    action = graphs.action("evil", f"({change}) 2> /dev/null; {read}", outputs=("made/out",))
    inputs = tuple(Input(path=p, digest="t") for p in PATHS)
    action = dataclasses.replace(action, inputs=inputs)
    plan = dataclasses.replace(graphs.plan(action), texts={"t": TEXT})
    done = execute_action.run_action(action, plan, context)
    assert not done.failure, done.failure
    made = context.store.path(STORE_KIND, action.key) / "made/out"
    assert made.read_text() == f"{TEXT}{TEXT}a.cpp\n"


# -- time and disk -------------------------------------------------------------------------------

# In a group of its own, too; LONG is a number of seconds by which the test finds what still runs.
GREED = ("sleep LONG", "setsid sleep LONG & setsid sleep LONG")


def _running(marker):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes()
        except OSError:
            continue
        if marker.encode() in text:
            found.append(text)
    return found


@pytest.mark.parametrize("script", GREED)
def test_an_action_that_takes_too_long_ends_with_all_that_it_started(context, script):
    seconds = f"1{abs(hash((script, str(context.store.root)))) % 10**6:06d}"
    context = dataclasses.replace(context, seconds=1)
    action = graphs.action("greedy", script.replace("LONG", seconds))
    done = execute_action.run_action(action, graphs.plan(action), context)
    assert done.failure, "it had no limit"
    assert "timed out after" in done.failure.output
    assert not context.store.has(STORE_KIND, action.key)
    until = time.monotonic() + 120
    while (left := _running(seconds)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left, "what it started goes on"
    # What stays to be looked at is what it was given, not what it wrote.
    assert sum(path.stat().st_size for path in _kept(context, action)) < 1 << 20


def test_a_failed_action_keeps_what_it_wrote_but_no_scratch_files(context):
    script = "head -c 5000000 /dev/zero > $TMPDIR/scratch; echo made > out; exit 3"
    # So that it shares its place on this machine with no action of another test or run.
    action = graphs.action(f"fails {uuid.uuid4()}", script)
    failure = execute_action.run_action(action, graphs.plan(action), context).failure
    kept = {path.name for path in _kept(context, action) if path.suffix != ".sh"}
    assert kept == {"out"}
    again = subprocess.run(shlex.split(failure.repeat), check=False)
    assert again.returncode == failure.returncode == 3


def _kept(context, action):
    tops = [*context.work.glob(f"{action.key[:8]}*")]
    if not context.sandbox.isolates:  # else its place on this machine is a name and no directory
        tops.append(Path(sandbox.fixed_path(action.key)))
    return [path for top in tops for path in (top, *top.rglob("*")) if path.is_file()]


def test_the_tmp_of_a_sandbox_is_small(context):
    if not context.sandbox.isolates:
        pytest.skip("without a sandbox /tmp is the machine's")
    script = "head -c 400000000 /dev/zero > /tmp/x; ls -l /tmp/x; echo made > out"
    action = graphs.action("fills", script)
    done = execute_action.run_action(action, graphs.plan(action), context)
    assert not done.failure
    assert "No space left" in done.completed.stderr
