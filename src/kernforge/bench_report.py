# SPDX-License-Identifier: Apache-2.0
"""A document of measurements as text, and two of them compared."""

from __future__ import annotations

from dataclasses import dataclass
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
            interval(row),
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


def interval(row: dict[str, Any]) -> str:
    """A median's 95 % interval as shares of it."""
    low, high = (row[end] / row["median_ns"] - 1 for end in ("low_ns", "high_ns"))
    return f"{low:+.1%} .. {high:+.1%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A candidate in two runs.

    Attributes:
        workload: what was computed.
        mode: how it was called.
        candidate: who computed it.
        before_ns: median of the earlier run.
        now_ns: median of this run.
        verdict: ``faster`` or ``slower`` when the intervals do not touch, else ``same``.
    """

    workload: str
    mode: str
    candidate: str
    before_ns: float
    now_ns: float
    verdict: str


def comparable(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether two documents are of one machine."""
    try:
        _comparable(now, before)
    except UsageError:
        return False
    return True


def changes(now: dict[str, Any], before: dict[str, Any]) -> list[Change]:
    """Every candidate that both runs measured.

    Raises:
        UsageError: the stored document is none, or of another machine or device.
    """
    _comparable(now, before)
    old = dict(_measured(before))
    return [
        Change(
            workload=key[0],
            mode=key[1],
            candidate=key[2],
            before_ns=old[key]["median_ns"],
            now_ns=row["median_ns"],
            verdict=_verdict(row, old[key]),
        )
        for key, row in _measured(now)
        if key in old
    ]


def _measured(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    for case in document["workloads"]:
        for row in case["results"]:
            if "median_ns" in row:
                yield (case["name"], row["mode"], row["candidate"]), row


def _verdict(row: dict[str, Any], old: dict[str, Any]) -> str:
    if row["low_ns"] > old["high_ns"]:
        return "slower"
    return "faster" if row["high_ns"] < old["low_ns"] else "same"


def behind(document: dict[str, Any], *, allowed: float = 0.05) -> list[str]:
    """Where the kernel is slower than a published version of it in the same run, beyond doubt.

    Args:
        document: a run with ``--against``.
        allowed: share by which the kernel's median may be longer.
    """
    found = []
    for case in document["workloads"]:
        mine = {row["mode"]: row for row in case["results"] if row["candidate"] == "kernel"}
        for row in case["results"]:
            ours = mine.get(row["mode"], {})
            if row.get("published") and "median_ns" in row and "median_ns" in ours:
                slower = ours["median_ns"] / row["median_ns"] - 1
                if slower > allowed and _verdict(ours, row) == "slower":
                    found.append(
                        f"{case['name']}, {row['mode']}: {duration(ours['median_ns'])}, "
                        f"{row['candidate']} takes {duration(row['median_ns'])} ({slower:+.1%})"
                    )
    return found


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
    _comparable(now, before)
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


def _comparable(now: dict[str, Any], before: dict[str, Any]) -> None:
    if before.get("format") != _FORMAT:
        raise UsageError("the stored result is no document of kernforge bench")
    for what in ("gpu", "cpu"):
        if now["machine"][what] != before["machine"][what]:
            raise UsageError(
                f"the stored result is of {before['machine'][what]}, "
                f"this is {now['machine'][what]}",
                hint="times of two machines cannot be compared: store one of this machine",
            )


def _of_candidate(
    document: dict[str, Any], name: str
) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    for case in document["workloads"]:
        for row in case["results"]:
            if row["candidate"] == name:
                yield (case["name"], row["mode"]), row


def sweep(document: dict[str, Any], mode: str) -> list[tuple[str, ...]]:
    """Head and rows of a table with a row for each workload and a column for each candidate."""
    cases = document["workloads"]
    names = list(dict.fromkeys(row["candidate"] for case in cases for row in case["results"]))
    body = [
        (
            case["name"],
            *(_cell(case, name, mode) for name in names),
            duration(case["ceilings"][mode]["roof_ns"]),
        )
        for case in cases
    ]
    return [("workload", *names, "the roof"), *body]


def _cell(case: dict[str, Any], name: str, mode: str) -> str:
    for row in case["results"]:
        if (row["candidate"], row["mode"]) == (name, mode):
            if "median_ns" in row:
                return f"{duration(row['median_ns'])} ({row['share_of_roof']:.0%})"
            return "refused" if row["refused"] else "skipped"
    return ""


def summary(document: dict[str, Any]) -> dict[str, Any]:
    """The document's first mode as a table for a page.

    Returns:
        ``title``, ``head``, ``rows`` and ``note``: a row for each workload, a column for each
        candidate with its median and its share of the roof.
    """
    mode, where = document["settings"]["modes"][0], document["machine"]
    head, *body = sweep(document, mode)
    return {
        "title": f"{document['project']} on {where['gpu'] or where['cpu']}, time (share of the roof)",
        "head": list(head),
        "rows": [list(row) for row in body],
        "note": f"{mode.capitalize()} caches; all in one run, in turn, each in "
        "a process of its own, on new inputs in each call. By `kernforge bench`.",
    }
