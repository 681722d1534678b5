# SPDX-License-Identifier: Apache-2.0
"""Medians, their intervals, and ratios."""

import random

import pytest

from kernforge.bench import stats


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (20, 6), (40, 14), (2000, 956)]
)
def test_an_interval_has_binomial_ranks(count, rank):
    found = stats.median(range(1, count + 1))
    assert (found.low, found.high) == (rank, count + 1 - rank)


def test_fewer_than_six_samples_have_no_interval():
    assert stats.median([1.0] * 5).width == float("inf")


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.2, "slower"), (0.8, "faster"), (1.0, "inconclusive")]
)
def test_a_ratio_by_rounds_ignores_a_slow_machine(factor, verdict):
    luck = random.Random(3)
    kernel = {number: (1 + 9 * (number % 3)) * luck.uniform(0.99, 1.01) for number in range(30)}
    other = {number: time * factor * luck.uniform(0.99, 1.01) for number, time in kernel.items()}
    ratio = stats.paired(other, kernel)
    assert ratio.value == pytest.approx(factor, rel=0.02)
    assert ratio.verdict == verdict
    assert stats.paired({1: 1.0}, kernel) is None


def test_the_time_of_a_round_ignores_outliers():
    assert stats.of_calls([10.0, 10.0, 10.0, 900.0, 1.0, 10.0, 10.0, 10.0]) == 10.0
    assert stats.of_calls([7.0]) == 7.0
