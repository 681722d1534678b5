# SPDX-License-Identifier: Apache-2.0
"""A machine that is busy makes turns late, and an honest kernel is not refused for that; turns in
which a GPU says that it is slowed down do not count, whatever came of them."""

import itertools
import time
from pathlib import Path

import pytest

from kernforge.bench import document
from kernforge.bench.engine import judge
from kernforge.bench.engine.messages import Measure
from kernforge.bench.engine.runner import CandidateProcess
from kernforge.bench.engine.samples import Reading
from kernforge.bench.engine.workload import Candidate, Settings, Tensor, Workload

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def forked(fork_server, monkeypatch):
    fork_server.fork_workers(monkeypatch)


LIBRARY = Path(__file__).parent / "honest" / "library.py"
WORK = Workload(
    name="product",
    inputs=(Tensor(shape=(16, 16)), Tensor(shape=(16, 16))),
    reference=lambda a, b: a.double() @ b.double(),
)
LATE_S = 0.05
ROUNDS = 6


def results(names, rounds, gpu=None):
    racing = [Candidate(name=name, kind="kernel", file=str(LIBRARY)) for name in names]
    settings = Settings(modes=("hot",), least=rounds, most=rounds)
    (found,) = judge.measure_all([WORK], racing, settings, print, gpu)
    return document.case(WORK, found, settings.modes, "cpu")["results"]


def measured(monkeypatch, late):
    """Rows of one whose replies reach the judge late, where ``late`` says so of a turn, and of another."""
    ask, count = CandidateProcess.ask, itertools.count()

    def asked(process, seconds, request, *kinds):
        reply = ask(process, seconds, request, *kinds)
        if isinstance(request, Measure) and process.candidate.name == "late" and late(next(count)):
            time.sleep(LATE_S)
        return reply

    monkeypatch.setattr(CandidateProcess, "ask", asked)
    return results(["late", "other"], ROUNDS)


def test_who_is_late_at_first_is_looked_at_again_and_others_are_not(monkeypatch):
    for _ in range(3):  # this machine may be late itself when it looks again
        with monkeypatch.context() as patch:
            late, other = measured(patch, lambda turn: turn <= 2 * ROUNDS)
        if late["refused"] == other["refused"] == "":
            break
    assert late["refused"] == other["refused"] == ""
    assert late["rounds"] > ROUNDS
    assert other["rounds"] == ROUNDS


def test_who_is_always_late_is_refused(monkeypatch):
    late, other = measured(monkeypatch, lambda _: True)
    assert "the judge's clock saw" in late["refused"]
    assert other["refused"] == ""


class SlowedDown:
    """A GPU that says so in each reading that ``when`` names."""

    def __init__(self, when):
        self._when, self._count = when, itertools.count()

    def reading(self):
        held = {"power brake"} if self._when(next(self._count)) else {"power cap"}
        return Reading(sm_mhz=1980, power_w=650.0, reasons=frozenset(held))


def measured_while(when):
    (row,) = results(["library"], 12, SlowedDown(when))
    return row


# Everyone who takes turns, the engine's own included, is asked before and after.
A_ROUND = 2 * len(("library", "nothing", "copy", "matrix product"))


def test_turns_are_discarded_and_counted():
    row = measured_while(lambda number: number // A_ROUND in (1, 5, 9))
    assert row["refused"] == ""
    assert row["rounds"] == 9
    assert row["discarded_for"] == {"power brake": row["discarded"]}
    assert row["discarded"] == row["calls"] / 3 > 0
    assert row["conditions"]["power_w"] == (650.0, 650.0)
    assert row["conditions"]["reasons"] == {"power brake": 3, "power cap": 9}


def test_where_too_little_is_left_the_reason_is_reported():
    row = measured_while(lambda number: number // A_ROUND >= 5)
    assert "5 rounds were left" in row["refused"]
    assert "power brake" in row["refused"]
    assert "median_ns" not in row
