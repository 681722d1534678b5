# SPDX-License-Identifier: Apache-2.0
"""The median of times, its interval, and ratios of two candidates.

The interval is that of order statistics (Conover, Practical Nonparametric Statistics, 3.2): with
``B ~ Binomial(n, 1/2)``, the l-th smallest and the l-th largest sample enclose the median with
probability ``1 - 2 P(B < l)``, whatever the times' distribution is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
FEWEST = 6  # Fewer samples have no 95 % interval at all.
_EXACT_UP_TO = 1000  # Beyond, the normal approximation is off by less than a sample.


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """A median of times and its 95 % confidence interval, in the unit of the samples.

    Attributes:
        low: lower end; -inf when there are too few samples.
        high: upper end; inf when there are too few samples.
    """

    value: float
    low: float
    high: float
    samples: int

    @property
    def width(self) -> float:
        """Width of the interval as a share of the median."""
        return (self.high - self.low) / self.value if self.value > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread of times, in the unit of the samples; quartiles are interpolated linearly.

    Attributes:
        std: their standard deviation, of these samples and not of a population.
        q1: a quarter is shorter.
        outliers: how many lie more than 1.5 times ``q3 - q1`` outside of the quartiles.
    """

    mean: float
    std: float
    least: float
    most: float
    q1: float
    q3: float
    outliers: int


def spread(samples: Sequence[float]) -> Spread:
    """The spread of one or more samples."""
    q1, _, q3 = (
        statistics.quantiles(samples, n=4, method="inclusive")
        if len(samples) > 1
        else (samples[0],) * 3
    )
    reach = 1.5 * (q3 - q1)
    return Spread(
        mean=statistics.fmean(samples),
        std=statistics.pstdev(samples),
        least=min(samples),
        most=max(samples),
        q1=q1,
        q3=q3,
        outliers=sum(not q1 - reach <= each <= q3 + reach for each in samples),
    )


def median(samples: Sequence[float]) -> Median:
    """Median and confidence interval of one or more samples."""
    ordered = sorted(samples)
    rank = _rank(len(ordered))
    return Median(
        value=statistics.median(ordered),
        low=ordered[rank - 1] if rank else -math.inf,
        high=ordered[-rank] if rank else math.inf,
        samples=len(ordered),
    )


def _rank(count: int) -> int:
    """Largest l whose interval keeps the confidence; 0 when none does."""
    if count < FEWEST:
        return 0
    tail = (1 - CONFIDENCE) / 2
    if count > _EXACT_UP_TO:
        z = statistics.NormalDist().inv_cdf(1 - tail)
        return max(1, math.floor(count / 2 - z * math.sqrt(count) / 2))
    below = 0
    for rank in range(count):
        below += math.comb(count, rank)
        if below > tail * 2**count:
            return rank
    raise AssertionError("the probabilities sum to one")


def of_rounds(rounds: Mapping[int, Sequence[float]]) -> Median:
    """Median and interval of the rounds' medians; at least one round must have times.

    Calls of one round follow each other and err together, so a round counts as one sample, however
    many calls it has; between two rounds are the turns of all other candidates.
    """
    return median(list(middles(rounds).values()))


def middles(rounds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The median of each round that has times."""
    return {number: statistics.median(times) for number, times in rounds.items() if times}


def narrow_enough(rounds: Mapping[int, Sequence[float]], width: float) -> bool:
    """Whether the interval is at most ``width`` of the median wide."""
    count = sum(1 for times in rounds.values() if times)
    return count >= FEWEST and of_rounds(rounds).width <= width


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as long one candidate takes as another, by rounds that both have.

    What slows a machine for a while slows both in that round, and falls out of the ratio. The
    intervals are the sign test's: the order statistics of the rounds' ratios. A round's median can
    jump between the steps in which a GPU's clock counts a short call, its mean cannot: a difference
    is sure where both are.

    Attributes:
        value: median of the ratios of the rounds' medians.
        mean: median of the ratios of the rounds' trimmed means.
    """

    value: float
    low: float
    high: float
    mean: float
    mean_low: float
    mean_high: float
    rounds: int

    @property
    def verdict(self) -> str:
        """``slower`` or ``faster`` where both intervals are without 1, else ``unsure``."""
        if min(self.low, self.mean_low) > 1:
            return "slower"
        return "faster" if max(self.high, self.mean_high) < 1 else "unsure"


def paired(
    mine: Mapping[int, Sequence[float]], theirs: Mapping[int, Sequence[float]]
) -> Ratio | None:
    """Two candidates of one run, round by round; None where too few rounds have both."""
    medians = _ratios(middles(mine), middles(theirs))
    if medians.samples < FEWEST:
        return None
    means = _ratios(trimmed_means(mine), trimmed_means(theirs))
    return Ratio(
        value=medians.value,
        low=medians.low,
        high=medians.high,
        mean=means.value,
        mean_low=means.low,
        mean_high=means.high,
        rounds=medians.samples,
    )


def trimmed_means(rounds: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """The mean of each round that has times, without the least and the greatest twentieth.

    Of four times and more, one is left out at either end.
    """
    return {number: _trimmed_mean(times) for number, times in rounds.items() if times}


def _trimmed_mean(times: Sequence[float]) -> float:
    out = max(len(times) // 20, 1 if len(times) >= 4 else 0)  # noqa: PLR2004
    return statistics.fmean(sorted(times)[out : len(times) - out])


def _ratios(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Median:
    """The ratios of the rounds that both have; of none, no samples."""
    ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number, 0.0) > 0.0]
    return median(ratios) if ratios else Median(value=0.0, low=0.0, high=0.0, samples=0)
