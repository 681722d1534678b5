# SPDX-License-Identifier: Apache-2.0
"""A document of measurements as text, and two of them compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernforge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORMAT = "kernforge-bench-1"


def rows(case: dict[str, Any], mode: str) -> list[tuple[str, ...]]:
    """The text table of a workload in one mode, fastest first, the refused last."""
    here = [row for row in case["results"] if row["mode"] == mode]
    measured = sorted((r for r in here if "median_ns" in r), key=lambda row: row["median_ns"])
    table: list[tuple[str, ...]] = [
        (
            row["candidate"],
            duration(row["median_ns"]),
            f"{_of(row['low_ns'], row['median_ns'])} .. {_of(row['high_ns'], row['median_ns'])}",
            f"{row['bytes_per_s'] / 1e9:.1f}",
            f"{row['share_of_roof']:.1%}",
            f"{row['samples']}",
        )
        for row in measured
    ]
    for word in ("skipped", "refused"):
        table.extend((row["candidate"], word, row[word], "", "", "") for row in here if row[word])
    return table


HEAD = ("candidate", "median", "95 % interval", "GB/s", "of the roof", "calls")


def duration(nanoseconds: float) -> str:
    """A time as people write it."""
    for limit, unit, scale in ((1e3, "ns", 1.0), (1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


def _of(end: float, middle: float) -> str:
    return f"{end / middle - 1:+.1%}"


def regressions(
    now: dict[str, Any], before: dict[str, Any], *, candidate: str = "kernel", allowed: float = 0.05
) -> list[str]:
    """Where a candidate is slower than a stored run says, beyond doubt.

    Slower means: the intervals do not touch, and the medians differ by more than ``allowed``. A
    workload that was measured before and is refused or missing now is a regression as well.

    Args:
        now: a document of this run.
        before: a stored one.
        candidate: whose times are compared.
        allowed: share by which a median may grow.

    Raises:
        UsageError: the stored document is none, or of another machine or device.
    """
    if before.get("format") != _FORMAT:
        raise UsageError("the stored result is no document of kernforge bench")
    for what in ("gpu", "cpu"):
        if now["machine"][what] != before["machine"][what]:
            raise UsageError(
                f"the stored result is of {before['machine'][what]}, "
                f"this is {now['machine'][what]}",
                hint="times of two machines cannot be compared: store one of this machine",
            )
    new = dict(_of_candidate(now, candidate))
    found = []
    for key, old in _of_candidate(before, candidate):
        what = ", ".join(key)
        if "median_ns" not in old or key[1] not in now["settings"]["modes"]:
            continue
        row = new.get(key)
        if row is None or "median_ns" not in row:
            why = (row["refused"] or row["skipped"]) if row else "missing"
            found.append(f"{what}: measured before, and now {why}")
        elif row["median_ns"] > old["median_ns"] * (1 + allowed) and row["low_ns"] > old["high_ns"]:
            found.append(
                f"{what}: {duration(row['median_ns'])}, was {duration(old['median_ns'])} "
                f"({row['median_ns'] / old['median_ns'] - 1:+.1%})"
            )
    return found


def _of_candidate(
    document: dict[str, Any], name: str
) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for case in document["workloads"]:
        for row in case["results"]:
            if row["candidate"] == name:
                yield (case["name"], row["mode"]), row
