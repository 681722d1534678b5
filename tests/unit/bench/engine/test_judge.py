# SPDX-License-Identifier: Apache-2.0
"""What is refused before a candidate is started, and the order of turns, and what is said meanwhile."""

from types import SimpleNamespace

import pytest

from kernforge.bench import document
from kernforge.bench.engine import judge, samples
from kernforge.bench.engine.workload import Candidate, Settings, Tensor, Workload
from kernforge.errors import UsageError

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

WORK = Workload(name="w", inputs=(Tensor(shape=(4,)),), reference=lambda x: x)


@pytest.mark.parametrize("names", [("a", "a"), ("kernel", "copy")])
def test_every_candidate_has_its_own_name(names):
    racing = [Candidate(name=name, kind="peer") for name in names]
    with pytest.raises(UsageError, match=f"two candidates are called '{names[1]}'"):
        next(judge.measure_all([WORK], racing, Settings(), print))


@pytest.mark.parametrize(("seed", "repeats"), [(0, False), (7, True)])
def test_the_order_is_repeated_only_where_a_seed_is_given(seed, repeats):
    trials = [judge._Trial(WORK, Settings(seed=seed), None, set_up=False) for _ in range(2)]
    one, other = ([trial.order("abcdef", n) for n in range(20)] for trial in trials)
    assert (one == other) is repeats


def measured(kind, times):
    turns = [samples.TimedTurn(round=n, calls=1, times=times) for n in range(6)]
    return samples.Measurement(
        candidate=kind,
        kind=kind,
        workload="w",
        mode="hot",
        kept=samples.keep(turns),
        checked=1,
        refused="",
        skipped="",
        moved=32,
        flops=0,
    )


def test_a_process_that_reports_no_time_is_refused():
    found = [measured("copy", (100.0,)), measured("kernel", (0.0,))]
    (row,) = document.case(WORK, found, ("hot",), "cpu")["results"]
    assert row["refused"] == "its process reported calls that take no time"


def test_a_workload_that_takes_long_says_how_far_it_is(monkeypatch):
    monkeypatch.setattr(judge, "EVERY_S", 0)
    trial = judge._Trial.__new__(judge._Trial)
    trial._settings = SimpleNamespace(least=2, most=3)
    trial._workload = SimpleNamespace(name="small")
    trial._processes = []
    monkeypatch.setattr(trial, "_round", lambda *_: None)
    monkeypatch.setattr(trial, "_sure", lambda: False)
    monkeypatch.setattr(trial, "_doubts", list)
    notes = []
    trial._rounds(notes.append)
    assert [note.partition(" rounds")[0] for note in notes] == [
        f"  small: {number} of at most 3" for number in (1, 2, 3)
    ]
