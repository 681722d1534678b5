# SPDX-License-Identifier: Apache-2.0
"""Turns in which the GPU says that it is slowed down do not count, whatever came of them."""

import itertools
from pathlib import Path

import pytest

from kernforge.bench import document
from kernforge.bench.engine import judge
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


class SlowedDown:
    """A GPU that says so in each reading that ``when`` names."""

    def __init__(self, when):
        self._when, self._count = when, itertools.count()

    def reading(self):
        held = {"power brake"} if self._when(next(self._count)) else {"power cap"}
        return Reading(sm_mhz=1980, power_w=650.0, reasons=frozenset(held))


def measured(when):
    candidate = Candidate(name="library", kind="kernel", file=str(LIBRARY))
    settings = Settings(modes=("hot",), least=12, most=12)
    (found,) = judge.measure_all([WORK], [candidate], settings, print, SlowedDown(when))
    return document.case(WORK, found, settings.modes, "cpu")["results"][0]


# Everyone who takes turns, the engine's own included, is asked before and after.
A_ROUND = 2 * len(("library", "nothing", "copy", "matrix product"))


def test_turns_are_discarded_and_counted():
    row = measured(lambda number: number // A_ROUND in (1, 5, 9))
    assert row["refused"] == ""
    assert row["rounds"] == 9
    assert row["discarded_for"] == {"power brake": row["discarded"]}
    assert row["discarded"] == row["calls"] / 3 > 0
    assert row["conditions"]["power_w"] == (650.0, 650.0)
    assert row["conditions"]["reasons"] == {"power brake": 3, "power cap": 9}


def test_where_too_little_is_left_the_reason_is_reported():
    row = measured(lambda number: number // A_ROUND >= 5)
    assert "5 rounds were left" in row["refused"]
    assert "power brake" in row["refused"]
    assert "median_ns" not in row
