# SPDX-License-Identifier: Apache-2.0
"""The loop that runs a graph, with small real programs in the place of compilers."""

import sys
from dataclasses import replace

import pytest
from support import graphs

from kernforge.builder.pool import LocalPool, Measures
from kernforge.builder.results import STORE_KIND
from kernforge.errors import ToolchainError
from kernforge.system.process import Command, run

MB = 10**6
EAT = "import time; held = bytearray({mb}_000_000); time.sleep({s}); open('out', 'w').close()"

# Where many processes run, memory is looked at twice a second.
LOOKED_AT_S = 2


def eat(title, mb, seconds=0.4):
    return graphs.action(title, EAT.format(mb=mb, s=seconds), shell=sys.executable)


def overlap(events):
    running = most = 0
    for line in events.log:
        running += {"+": 1, "-": -1}.get(line[0], 0)
        most = max(most, running)
    return most


@pytest.mark.parametrize("depth", [0, 1])
def test_memory_of_a_process_tree_is_measured(depth):
    code = EAT.format(mb=200, s=LOOKED_AT_S).replace("open('out', 'w').close()", "pass")
    argv = (sys.executable, "-c", code)
    if depth:
        argv = (sys.executable, "-c", f"import subprocess; subprocess.run({argv!r})")
    done = run(Command(argv=argv))
    assert 200 * MB < done.peak_bytes < 300 * MB


def test_the_memory_of_the_parent_does_not_count():
    held = bytearray(400 * MB)
    done = run(Command(argv=("sleep", "0.3")))
    assert len(held) > done.peak_bytes
    assert done.peak_bytes < 50 * MB


def test_a_run_updates_the_estimate(tmp_path):
    one = eat("a", 150, LOOKED_AT_S)
    outcome, _ = graphs.go(tmp_path, one)
    known = Measures(tmp_path, jobs=4).expect(one)
    assert 150 * MB < known.memory < 250 * MB
    assert outcome.spent[0].peak_bytes == known.memory


@pytest.mark.parametrize(("available", "together"), [(0, 1), (900 * MB, 3)])
def test_memory_bounds_parallel_actions(tmp_path, available, together):
    actions = [eat(name, 10, 1) for name in "abc"]
    for one in actions:
        Measures(tmp_path, jobs=4).learn(one, peak_bytes=150 * MB, wall_s=1)
    _, events = graphs.go(tmp_path, *actions, pool=LocalPool(jobs=4, available=lambda: available))
    assert overlap(events) == together


# The second time it fails if anything runs beside it.
KILLED_ONCE = "if [ -e mark ]; then ls | grep busy || >$OLDPWD/out; else >mark; {kill}; fi"
BUSY = "cd {at}; >busy{n}; sleep 0.3; rm busy{n}; >$OLDPWD/out"


@pytest.mark.parametrize(
    "kill",
    [
        "kill -9 $$",
        "echo \"nvcc error : 'cicc' died due to signal 9 (Kill signal)\"; exit 9",
        "echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1",
        "exit 137",
    ],
)
def test_an_action_killed_for_memory_is_retried_alone(tmp_path, kill):
    others = [graphs.action(f"other{n}", BUSY.format(at=tmp_path, n=n)) for n in range(3)]
    heavy = graphs.action("heavy", f"cd {tmp_path}; {KILLED_ONCE.format(kill=kill)}")
    outcome, events = graphs.go(tmp_path / "store", heavy, *others)
    assert outcome.failures == ()
    assert events.log.count("+heavy") == 2


@pytest.mark.parametrize(("end", "runs"), [("kill -9 $$", 2), ("exit 1", 1)])
def test_only_a_killed_action_is_retried_once_and_memory_named(tmp_path, end, runs):
    heavy = graphs.action("heavy", f"echo x >>{tmp_path}/runs; {end}")
    needs = graphs.action("needs", ">out", needs=[heavy])
    outcome, _ = graphs.go(tmp_path / "store", heavy, needs)
    (failure,) = outcome.failures
    assert ("out of memory?" in failure.output) is (runs == 2)
    assert (tmp_path / "runs").read_text() == "x\n" * runs


def test_without_a_compiler_a_result_serves_where_its_headers_are_not(tmp_path):
    header = tmp_path / "zlib.h"
    header.write_text("1")
    unit = graphs.action("unit", f"echo out: {header} >$SUNPRO_DEPENDENCIES; >out")
    linked = graphs.action("link", ">out", needs=[unit])
    graphs.go(tmp_path, unit, linked)
    header.unlink()
    refusing = replace(graphs.context(tmp_path), refusal="no compiler is here")
    refusing.store.forget(STORE_KIND, unit.key)
    assert graphs.go(tmp_path, unit, linked, context=refusing)[0].reused == 1
    header.write_text("2")
    with pytest.raises(ToolchainError, match=r"out is not in the store .*no compiler is here"):
        graphs.go(tmp_path, unit, linked, context=refusing)
