# SPDX-License-Identifier: Apache-2.0
"""Reasons not to believe a candidate's times: clocks that disagree, modes that it distinguishes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

_HIDDEN_SHARE = 0.5
_HIDDEN_NS = 3_000_000.0
_EMPTY_SHARE = 2.0  # Caches and page tables make one worker's empty call dearer than another's.
_COLD_SHARE = 0.5
_FEWEST = 4
_UNEVEN = 4.0  # Under a load of eight processes on two cores, honest candidates reach 1.5.


def hidden_time(
    turns: Sequence[tuple[float, float, int]], empty: Sequence[tuple[float, float, int]]
) -> str:
    """Why a worker's clock cannot be believed; empty when it can.

    Args:
        turns: of each turn without a flush, the nanoseconds of the judge's clock, the sum of what the
            worker reported, and the number of calls.
        empty: the same of calls that do nothing.
    """
    gap = _unexplained(
        [(wall - reported, reported, calls) for wall, reported, calls in turns],
        [(wall - reported, reported, calls) for wall, reported, calls in empty],
    )
    if gap is None:
        return ""
    excess, reported, calls = gap
    return (
        f"its process reported {reported / calls / 1e3:.1f} us a call, and the judge's clock saw at "
        f"least {excess / calls / 1e3:.1f} us more"
    )


def computed_ahead(
    turns: Sequence[tuple[float, float, int]], empty: Sequence[tuple[float, float, int]]
) -> str:
    """Why a worker had results before its clock started; empty when it had not.

    Args:
        turns: of each turn, the nanoseconds that the worker was at work until inputs lay ready, the
            sum of what it reported of the calls after that, and their number.
        empty: the same of calls that do nothing.
    """
    gap = _unexplained(turns, empty)
    if gap is None:
        return ""
    excess, reported, calls = gap
    return (
        f"its process worked for {excess / calls / 1e3:.1f} us a call while inputs were laid out, "
        f"and reported {reported / calls / 1e3:.1f} us a call for the calls after that"
    )


def _unexplained(
    turns: Sequence[tuple[float, float, int]], empty: Sequence[tuple[float, float, int]]
) -> tuple[float, float, int] | None:
    """Excess, reported time and calls of the turn with the least excess; None: it may be honest.

    Args:
        turns: nanoseconds that the worker did not report, those that it did, and calls.
        empty: the same of calls that do nothing.
    """
    if not turns or not empty:
        return None
    # A busy machine lengthens single turns; the best turn is what must be explained.
    cost = min(spent / calls for spent, _, calls in empty)
    gap = min(
        (spent - _EMPTY_SHARE * cost * calls, reported, calls) for spent, reported, calls in turns
    )
    excess, reported, _ = gap
    return gap if excess > _HIDDEN_NS + _HIDDEN_SHARE * reported else None


def distinguished(times: dict[str, list[float]]) -> str:
    """Why a candidate seems to treat cold turns unlike hot ones; empty when it does not."""
    if not times.get("cold") or not times.get("hot"):
        return ""
    cold, hot = (statistics.median(times[mode]) for mode in ("cold", "hot"))
    if cold >= _COLD_SHARE * hot:
        return ""
    return f"{cold / 1e3:.1f} us with cold caches, {hot / 1e3:.1f} us with hot ones"


def uneven(turns: Sequence[Sequence[float]]) -> str:
    """Why a median does not stand for all calls; empty when it does.

    Args:
        turns: nanoseconds of each call, by turns. A busy machine lengthens calls, and so both the
            mean of a turn and its median; the least mean of any turn is what must be explained.
    """
    several = [times for times in turns if len(times) >= _FEWEST]
    if not several:
        return ""
    least = min(statistics.fmean(times) for times in several)
    median = statistics.median(time for times in several for time in times)
    if least <= _UNEVEN * median:
        return ""
    return (
        f"in every turn, a call took at least {least / 1e3:.1f} us on average, and the median call "
        f"{median / 1e3:.1f} us: some calls did the work of others"
    )
