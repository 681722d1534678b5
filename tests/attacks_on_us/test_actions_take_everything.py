# SPDX-License-Identifier: Apache-2.0
"""An action takes all time or disk that it can get: it is ended, with all that it started.

In the scripts ``LONG`` stands for a number of seconds by which the test finds what still runs.
"""

import shlex
import subprocess
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from support import graphs

from kernforge.builder import action as execute_action
from kernforge.builder import sandbox
from kernforge.builder.results import STORE_KIND

# In a group of its own, too.
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
    context = replace(context, seconds=1)
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
