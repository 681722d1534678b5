# SPDX-License-Identifier: Apache-2.0
"""The median of rounds, its interval, and ratios of two candidates.

The interval is that of order statistics (Conover, Practical Nonparametric Statistics, 3.2): with
``B ~ Binomial(n, 1/2)``, the l-th smallest and the l-th largest sample enclose the median with
probability ``1 - 2 P(B < l)``, whatever the times' distribution is. A round is one sample, however
many calls it has: calls of one round follow each other and err together.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TAILS = 40  # Each end leaves one part of so many: together 5 %.
FEWEST = 6
"""Fewer samples have no 95 % interval at all."""
_TRIMMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """A median and its 95 % confidence interval, in the unit of the samples.

    Attributes:
        low: lower end; -inf when there are too few samples.
        high: upper end; inf when there are too few samples.
    """

    value: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """Width of the interval as a share of the median."""
        return (self.high - self.low) / self.value if self.value > 0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio(Median):
    """The ratio of two candidates' times.

    Attributes:
        verdict: ``slower`` or ``faster`` if 1 is outside the interval, else ``inconclusive``.
    """

    verdict: str


def median(samples: Sequence[float]) -> Median:
    """Median and confidence interval of one or more samples."""
    ordered = sorted(samples)
    rank = _rank(len(ordered))
    return Median(
        value=statistics.median(ordered),
        low=ordered[rank - 1] if rank else -math.inf,
        high=ordered[-rank] if rank else math.inf,
    )


def _rank(count: int) -> int:
    """Largest l whose interval keeps the confidence; 0 when none does."""
    rank = below = 0
    while (below := below + math.comb(count, rank)) * _TAILS <= 2**count:
        rank += 1
    return rank


def of_calls(times: Sequence[float]) -> float:
    """The time of a round: the mean of its calls without the least and the greatest quarter.

    Not the median, which jumps between the steps in which a GPU's clock counts a short call.
    """
    out = len(times) // _TRIMMED
    return statistics.fmean(sorted(times)[out : len(times) - out])


def paired(mine: Mapping[int, float], theirs: Mapping[int, float]) -> Ratio | None:
    """How many times as long a candidate takes as another; None without enough common rounds.

    What slows a machine for a while slows both in that round, and falls out of the ratio.
    """
    ratios = [mine[number] / theirs[number] for number in mine if theirs.get(number, 0.0) > 0.0]
    if len(ratios) < FEWEST:
        return None
    middle = median(ratios)
    verdict = "slower" if middle.low > 1 else "faster" if middle.high < 1 else "inconclusive"
    return Ratio(value=middle.value, low=middle.low, high=middle.high, verdict=verdict)
