# SPDX-License-Identifier: Apache-2.0
"""Medians, their intervals, and which samples count."""

import math
import random

import pytest

from kernforge.bench.engine import stats


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


def each_a_round(times):
    return dict(enumerate([time] for time in times))


def test_enough_is_narrow_and_not_few():
    assert not stats.narrow_enough(each_a_round([1.0] * 5), 0.02)
    assert stats.narrow_enough(each_a_round([1.0] * 6), 0.02)
    assert not stats.narrow_enough(each_a_round([1.0, 2.0] * 10), 0.02)


def test_calls_of_one_round_are_one_sample():
    found = stats.of_rounds({number: [number] * 1000 for number in range(1, 7)} | {9: []})
    assert (found.low, found.value, found.high, found.samples) == (1, 3.5, 6, 6)
    assert not stats.narrow_enough({0: [1.0] * 10_000}, 0.02)


def test_a_candidate_beside_itself_differs_no_oftener_than_it_says():
    draw = random.Random(11)
    differs = 0
    for _ in range(500):
        # The machine's level wanders from round to round, alike for both.
        level = [draw.choice((1.0, 1.5, 3.0)) for _ in range(10)]
        one, other = (
            {n: [at * draw.gauss(10, 0.2) for _ in range(4)] for n, at in enumerate(level)}
            for _ in range(2)
        )
        differs += stats.paired(one, other).verdict != "unsure"
    assert differs / 500 <= 0.05


@pytest.mark.parametrize(("share", "verdict"), [(1.05, "slower"), (0.95, "faster")])
def test_close_candidates_are_ranked_although_the_level_wanders(share, verdict):
    draw = random.Random(5)
    level = [draw.uniform(1, 3) for _ in range(10)]
    theirs = {n: [at * draw.gauss(10, 0.1) for _ in range(4)] for n, at in enumerate(level)}
    mine = {n: [share * at * draw.gauss(10, 0.1) for _ in range(4)] for n, at in enumerate(level)}
    found = stats.paired(mine, theirs)
    assert found.verdict == verdict
    assert found.low <= share <= found.high
    assert found.rounds == 10
    spans = [stats.of_rounds(each) for each in (mine, theirs)]
    assert spans[0].low < spans[1].high
    assert spans[1].low < spans[0].high


def test_only_rounds_of_both_are_compared():
    assert stats.paired(each_a_round([1.0] * 6), each_a_round([1.0] * 5)) is None
    mine = {number: [2.0] for number in range(8)} | {3: []}
    assert stats.paired(mine, each_a_round([1.0] * 8)).rounds == 7


# Two steps of a GPU's clock: by their medians two of these differ by a twentieth, by their means not.
LOW, HIGH = [3.6, 3.8] * 15 + [3.6], [3.6, 3.8] * 15 + [3.8]


def test_a_median_that_jumps_between_two_steps_is_not_a_difference():
    ratio = stats.paired(dict.fromkeys(range(10), LOW), dict.fromkeys(range(10), HIGH))
    assert round(ratio.value, 3) == round(ratio.high, 3) == 0.947
    assert 0.998 < ratio.mean < 1
    alternating = {n: (LOW, HIGH)[n % 2] for n in range(10)}
    assert stats.paired(alternating, dict.fromkeys(range(10), HIGH)).verdict == "unsure"


def test_a_lead_in_every_round_is_one_by_means_too():
    ratio = stats.paired({n: [3.8] * 9 for n in range(8)}, {n: [4.0] * 9 for n in range(8)})
    assert (ratio.mean, ratio.mean_low, ratio.mean_high) == (0.95, 0.95, 0.95)
    assert ratio.verdict == "faster"


def test_single_calls_are_left_out_of_a_mean():
    assert stats.trimmed_means({0: [1.0] * 38 + [900.0, 0.1], 1: [2.0, 4.0], 2: []}) == {0: 1, 1: 3}
