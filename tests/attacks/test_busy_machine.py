# SPDX-License-Identifier: Apache-2.0
"""A machine that is busy makes turns late; an honest kernel is not refused for that."""

import itertools
import time
from pathlib import Path

import pytest

from kernforge.bench import document
from kernforge.bench.engine import judge
from kernforge.bench.engine.messages import Measure
from kernforge.bench.engine.runner import CandidateProcess
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


def measured(monkeypatch, late):
    """Rows of one whose replies reach the judge late, where ``late`` says so of a turn, and of another."""
    ask, count = CandidateProcess.ask, itertools.count()

    def asked(process, seconds, request, *kinds):
        reply = ask(process, seconds, request, *kinds)
        if isinstance(request, Measure) and process.candidate.name == "late" and late(next(count)):
            time.sleep(LATE_S)
        return reply

    monkeypatch.setattr(CandidateProcess, "ask", asked)
    racing = [Candidate(name=name, kind="kernel", file=str(LIBRARY)) for name in ("late", "other")]
    settings = Settings(modes=("hot",), least=ROUNDS, most=ROUNDS)
    (found,) = judge.measure_all([WORK], racing, settings, print, None)
    return document.case(WORK, found, settings.modes, "cpu")["results"]


def test_who_is_late_at_first_is_looked_at_again_and_nobody_else(monkeypatch):
    late, other = measured(monkeypatch, lambda turn: turn <= 2 * ROUNDS)
    assert late["refused"] == other["refused"] == ""
    assert late["rounds"] > ROUNDS
    assert other["rounds"] == ROUNDS


def test_who_is_always_late_is_refused(monkeypatch):
    late, other = measured(monkeypatch, lambda _: True)
    assert "the judge's clock saw" in late["refused"]
    assert other["refused"] == ""
