# SPDX-License-Identifier: Apache-2.0
"""Times that are not believed: clocks that disagree, calls that are uneven."""

import pytest

from kernforge.bench.engine import doubts

EMPTY = [(1.2e6, 0.2e6, 10)]  # an empty call costs 0.1 ms


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([(11e6, 10e6, 10)], True),
        ([(40e6, 10e6, 10), (11.4e6, 10e6, 10)], True),  # a busy machine once
        ([(24e6, 10e6, 10), (25e6, 10e6, 10)], False),
        ([(11e6, 10.0, 10)], False),
    ],
)
def test_time_that_a_worker_hides_is_seen(turns, believed):
    assert (doubts.hidden_time(turns, EMPTY) == "") is believed


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([(1.2e6, 0.2e6, 10)], True),
        ([(30e6, 0.2e6, 10), (1.9e6, 0.2e6, 10)], True),  # a busy machine once
        ([(12e6, 20e6, 10)], True),  # half of what it reported anyway
        ([(12e6, 0.2e6, 10), (13e6, 0.2e6, 10)], False),
    ],
)
def test_results_that_were_ready_before_the_clock_are_seen(turns, believed):
    assert (doubts.computed_ahead(turns, EMPTY) == "") is believed


@pytest.mark.parametrize(
    ("turns", "believed"),
    [
        ([], True),
        ([[1.0, 1.0, 1.1, 1.0]], True),
        ([[1.0, 1.0, 90.0, 1.0], [1.0, 1.0, 1.2, 1.0]], True),  # a busy machine once
        ([[1.0, 1.0, 90.0, 1.0], [1.0, 1.0, 1.2, 80.0]], False),
        ([[1.0, 3.0], [9.0]], True),  # too few to tell
        ([[0.0, 0.0, 0.0, 1.0]], False),
        ([[1.0] * 31 + [500.0], [4.0] * 31 + [500.0], [1.0] * 31 + [500.0]], False),  # busy once
    ],
)
def test_calls_that_do_the_work_of_others_are_seen(turns, believed):
    assert (doubts.uneven(turns) == "") is believed
