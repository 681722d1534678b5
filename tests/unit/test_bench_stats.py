# SPDX-License-Identifier: Apache-2.0
"""Medians, their intervals, and which samples count."""

import math
import random

import pytest

from kernforge import bench_stats as stats


@pytest.mark.parametrize(
    ("count", "rank"),
    # Conover, table of the sign test: the largest l with P(B < l) <= 0.025.
    [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (30, 10), (50, 18)],
)
def test_the_interval_is_that_of_order_statistics(count, rank):
    found = stats.median(list(range(1, count + 1)))
    assert (found.low, found.high) == ((rank, count + 1 - rank) if rank else (-math.inf, math.inf))


def test_exact_and_approximate_ranks_meet():
    assert abs(stats._rank(1000) - stats._rank(1001)) <= 1


def test_the_interval_holds_the_median_as_often_as_it_says():
    draw = random.Random(7)
    held = 0
    for _ in range(1000):
        found = stats.median([draw.expovariate(1.0) for _ in range(21)])
        held += found.low <= math.log(2) <= found.high
    assert 0.93 <= held / 1000 <= 0.99


def test_enough_is_narrow_and_not_few():
    assert not stats.narrow_enough([1.0] * 5, 0.02)
    assert stats.narrow_enough([1.0] * 6, 0.02)
    assert not stats.narrow_enough([1.0, 2.0] * 10, 0.02)


def test_throttled_samples_do_not_count():
    assert stats.keep_unthrottled([1, 2, 3, 4], [1980, 1980, 1200, None]) == [1, 2, 4]
    assert stats.keep_unthrottled([1, 2], [None, None]) == [1, 2]
