# SPDX-License-Identifier: Apache-2.0
"""Which actions start: cores, memory, long chains first; and what an action will cost."""

from dataclasses import replace

import pytest
from support import graphs

from kernforge.builder import pool
from kernforge.builder.pool import Estimate, Job, Measures, admit, threads

GB = 10**9


def wants(key, gb, seconds=10.0, critical_path_s=None, *, alone=False, width=1):
    action = replace(graphs.action(key, ""), key=key, archs=("9.0",) * width)
    return Job(
        action=action,
        estimate=Estimate(memory=int(gb * GB), seconds=seconds),
        critical_path_s=seconds if critical_path_s is None else critical_path_s,
        alone=alone,
    )


def has(gb, current=0.0, *, alone=False, threads=1):
    job = wants("running", gb, alone=alone)
    job.current, job.threads = int(current * GB), threads
    return job


def names(waiting, running, space):
    return "".join(job.action.key for job in admit(waiting, running, **space))


def room(slots=8, available=16.0):
    return {"slots": slots, "available": int(available * GB)}


@pytest.mark.parametrize(
    ("waiting", "running", "space", "chosen"),
    [
        pytest.param([wants("a", 1), wants("b", 1)], [], room(slots=1), "a", id="cores"),
        pytest.param([wants("a", 9), wants("b", 9)], [], room(), "a", id="memory"),
        pytest.param([wants("a", 1, 1), wants("b", 1, 9)], [], room(slots=1), "b", id="long first"),
        pytest.param(
            [wants("a", 1, 1, 99), wants("b", 1, 9)], [], room(slots=1), "a", id="long chain first"
        ),
        pytest.param([wants("a", 99)], [], room(), "a", id="too big for any room, so now"),
        pytest.param([wants("a", 99)], [has(1)], room(), "", id="too big waits for the others"),
        pytest.param([wants("a", 9)], [has(9)], room(), "", id="memory that was promised is taken"),
        pytest.param(
            [wants("a", 9)], [has(9, current=9)], room(), "a", id="memory in use is counted once"
        ),
        pytest.param(
            [wants("big", 15, 50), wants("short", 1, 5)], [has(2)], room(), "", id="keeps its turn"
        ),
        pytest.param([wants("a", 1)], [has(1, alone=True)], room(), "", id="beside one alone"),
        pytest.param([wants("a", 1, alone=True)], [has(1)], room(), "", id="alone waits"),
        pytest.param(
            [wants("x", 1, 99, alone=True), wants("b", 1)], [], room(), "b", id="alone comes last"
        ),
        pytest.param([wants("x", 1, alone=True)], [], room(), "x", id="alone"),
    ],
)
def test_admission(waiting, running, space, chosen):
    assert names(waiting, running, space) == chosen


@pytest.mark.parametrize(
    ("widths", "taken", "slots", "given"),
    [
        pytest.param([7], 1, 16, [7], id="as many as it can use"),
        pytest.param([7], 1, 4, [3], id="as many as there are"),
        pytest.param([7, 7], 1, 8, [4, 3], id="the first gets what is left over"),
        pytest.param([1, 7, 2], 1, 16, [1, 7, 2], id="no more than each can use"),
        pytest.param([7, 7, 7], 1, 4, [1, 1, 1], id="one each when all are taken"),
        pytest.param([7], 1, -3, [1], id="others wait for the slots"),
    ],
)
def test_spare_slots_become_threads(widths, taken, slots, given):
    chosen = [wants(str(n), 1, width=width) for n, width in enumerate(widths)]
    assert threads(chosen, [has(1, threads=taken)], slots) == given


# -- estimates --

MB = 10**6
NVCC = replace(
    graphs.action("a.cu", ""),
    kind="cuda",
    argv=("%{cuda-13.0}/bin/nvcc", "-c", "a.cu"),
    archs=("8.0", "8.6", "9.0", "10.0"),
    trees=("cuda-13.0", "cxx"),
)
CPP = replace(NVCC, kind="c++", argv=("%{cxx}", "-c", "a.cpp"), trees=("cxx",))


def test_an_edit_keeps_the_identity():
    first = replace(CPP, argv=(*CPP.argv, "-DTORCH_EXTENSION_NAME=_k_cpu_0123456789"), key="1")
    second = replace(CPP, argv=(*CPP.argv, "-DTORCH_EXTENSION_NAME=_k_cpu_abcdef6789"), key="2")
    assert pool.identity(first, jobs=1) == pool.identity(second, jobs=1)
    assert pool.identity(first, jobs=1) != pool.identity(CPP, jobs=1)


def test_measurements_survive_the_process_and_damage(tmp_path):
    Measures(tmp_path, jobs=1).learn(CPP, peak_bytes=70 * MB, wall_s=8)
    assert Measures(tmp_path, jobs=1).expect(CPP) == Estimate(memory=70 * MB, seconds=8)
    (path,) = tmp_path.rglob("*.json")
    path.write_text("{")
    assert Measures(tmp_path, jobs=1).expect(CPP) == pool.guess(CPP, jobs=1)


def test_the_critical_path_is_the_longest_chain():
    a = graphs.action("a", "")
    b = graphs.action("b", "", needs=[a])
    c = graphs.action("c", "", needs=[a])
    d = graphs.action("d", "", needs=[b, c])
    names = {one.key: one.title for one in (a, b, c, d)}
    seconds = {a.key: 1.0, b.key: 10.0, c.key: 2.0, d.key: 5.0}
    expected = {key: Estimate(memory=1, seconds=each) for key, each in seconds.items()}
    found = pool.critical_paths((a, b, c, d), expected)
    assert {names[k]: v for k, v in found.items()} == {"a": 16, "b": 15, "c": 7, "d": 5}
