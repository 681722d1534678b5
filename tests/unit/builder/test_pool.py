# SPDX-License-Identifier: Apache-2.0
"""Who may start: cores, memory, long chains first, nobody starves."""

from dataclasses import replace

import pytest
from support import graphs

from kernforge.builder.pool import Estimate, Job, admit, threads

GB = 10**9


def wants(key, gb, seconds=10.0, critical_path_s=None, *, alone=False, width=1):
    action = replace(graphs.action(key, ""), key=key, archs=("9.0",) * width)
    return Job(
        action=action,
        estimate=Estimate(memory=int(gb * GB), seconds=seconds),
        critical_path_s=seconds if critical_path_s is None else critical_path_s,
        alone=alone,
    )


def has(gb, seconds=10.0, current=0.0, *, alone=False, threads=1):
    job = wants("running", gb, seconds, alone=alone)
    job.current, job.threads = int(current * GB), threads
    return job


def names(waiting, running, space):
    return "".join(job.action.key for job in admit(waiting, running, 0.0, **space))


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
            [wants("big", 15, 50), wants("short", 1, 5)], [has(2, 10)], room(), "short", id="passes"
        ),
        pytest.param(
            [wants("big", 15, 50), wants("long", 1, 40)],
            [has(2, 10)],
            room(),
            "",
            id="may not pass",
        ),
        pytest.param([wants("a", 1)], [has(1, alone=True)], room(), "", id="beside one alone"),
        pytest.param([wants("a", 1, alone=True)], [has(1)], room(), "", id="alone waits"),
        pytest.param(
            [wants("x", 1, 99, alone=True), wants("b", 1)], [], room(), "b", id="alone comes last"
        ),
        pytest.param([wants("x", 1, alone=True)], [], room(), "x", id="alone"),
    ],
)
def test_who_may_start(waiting, running, space, chosen):
    assert names(waiting, running, space) == chosen


def test_threads_of_running_actions_are_slots():
    assert names([wants(key, 1) for key in "abc"], [has(1, threads=6)], room(slots=8)) == "ab"


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


def test_no_admission_is_beyond_the_memory():
    assert names([wants(str(n), 3) for n in range(9)], [], room()) == "01234"
