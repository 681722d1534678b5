# SPDX-License-Identifier: Apache-2.0
"""A compiler that an attacker wraps leaves something else than files where its outputs should be.

Host code must neither read through what it finds there (A2: a private key in the store) nor write
through it (A1: code into a file that the next Python runs).
"""

import os
import re
from pathlib import Path

import pytest
from support import graphs
from support.attacks import SECRET, holds

from kernforge.builder import action as execute_action
from kernforge.builder import sandbox
from kernforge.builder.results import STORE_KIND
from kernforge.system import files


def run(context, script, *, outputs=("out",)):
    action = graphs.action("evil", script, outputs=outputs)
    return action, execute_action.run_action(action, graphs.plan(action), context)


def stored(context):
    return [p for p in context.store.root.rglob("*") if p.is_file() and STORE_KIND in p.parts]


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
