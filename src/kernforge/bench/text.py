# SPDX-License-Identifier: Apache-2.0
"""A document of measurements as text, and the comparison of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernforge.errors import UsageError

FORMAT = "kernforge-bench-1"


def rows(case: dict[str, Any], mode: str) -> list[tuple[str, ...]]:
    """The table of a workload in one mode, fastest first, refused candidates last."""
    here = [row for row in case["results"] if row["mode"] == mode]
    timed = sorted((r for r in here if "median_ns" in r), key=lambda row: row["median_ns"])
    measured = [row for row in timed if not row.get("cannot_tell")]
    table: list[tuple[str, ...]] = [
        (
            row["candidate"],
            duration(row["median_ns"]),
            interval(row),
            beside(row),
            f"{row['bytes_per_s'] / 1e9:.1f}",
            f"{row['share_of_roof']:.1%}",
            counted(row),
        )
        for row in measured
    ]
    unsure = [row for row in timed if row.get("cannot_tell")]
    table.extend(
        (
            row["candidate"],
            CANNOT_TELL,
            row["cannot_tell"].partition(": ")[0],
            "",
            "",
            "",
            counted(row),
        )
        for row in unsure
    )
    left = [(row["candidate"], *why, "", "", "", "") for row in here if (why := left_out(row))]
    return table + sorted(left, key=lambda line: line[1] == "refused")


def unsure(document: dict[str, Any]) -> list[str]:
    """Why the times of a document that are not told cannot be, a line each."""
    rows_of_all = (row for case in document["workloads"] for row in case["results"])
    whole = (row.get("cannot_tell") or "" for row in rows_of_all)
    reasons = dict.fromkeys(why for each in whole if (why := each.partition(": ")[2]))
    return [f"{CANNOT_TELL}: {why}" for why in reasons]


def left_out(row: dict[str, Any]) -> tuple[str, str] | None:
    """``refused`` or ``skipped``, and why; None for a candidate with a time."""
    word = "refused" if row["refused"] else "skipped"
    return (word, row[word]) if row[word] else None


CANNOT_TELL = "cannot tell"
"""In the place of a time whose interval is too wide."""
HEAD = (
    "candidate",
    "median of a call",
    "95 % interval",
    "times the kernel's",
    "GB/s",
    "of the roof",
    "calls / rounds",
)
MODES = {
    "cold": "nothing of the inputs is in the caches; the device's clock",
    "hot": "the inputs were just read; the device's clock",
    "launch": "calls in a row as a program makes them, Python and launch included; the host's clock",
    "graph": "calls in a row inside a CUDA graph, on inputs that are not in the caches; the device's clock",
    "graph-hot": "calls in a row inside a CUDA graph, as many as the L2 cache holds; the device's clock",
}


def beside(row: dict[str, Any]) -> str:
    """How many times as long a candidate takes as the kernel, with the 95 % interval.

    The means are given, too, where they make a difference of the medians unsure.
    """
    ratio = row.get("beside")
    if not ratio:
        return ""
    span = f"{ratio['value']:.3f} ({ratio['low']:.3f} .. {ratio['high']:.3f})"
    sure = ratio["low"] > 1 or ratio["high"] < 1
    if sure and ratio["verdict"] == "unsure" and "mean" in ratio:
        low, high = ratio["mean_low"], ratio["mean_high"]
        span += f", by means {ratio['mean']:.3f} ({low:.3f} .. {high:.3f}),"
    return f"{span} {_SURE[ratio['verdict']]}"


_SURE = {"slower": "slower", "faster": "faster", "unsure": "no sure difference"}


def counted(row: dict[str, Any]) -> str:
    """How many calls and rounds count; of an older document, how many times."""
    return f"{row['calls']} / {row['rounds']}" if "rounds" in row else f"{row['samples']}"


def conditions(document: dict[str, Any]) -> list[str]:
    """The conditions of a document, a line each: machine, rounds, clocks of the GPU."""
    where, how = document["machine"], document["settings"]
    lines = [f"PARTIAL: {partial}"] if (partial := document.get("partial")) else []
    lines.append(machine_line(where))
    if "least" in how:
        lines += _rounds(how)
    return lines + ([*_gpu_lines(document)] if where["gpu"] else [])


def machine_line(facts: dict[str, Any]) -> str:
    """What was measured, a GPU or a CPU, with the versions that matter for it."""
    versions = [
        ("driver", facts.get("driver")),
        ("CUDA", facts.get("cuda") if facts["gpu"] else None),
        ("torch", facts["torch"]),
    ]
    named = (f"{name} {version}" for name, version in versions if version)
    return ", ".join([facts["gpu"] or facts["cpu"], *named])


def _rounds(how: dict[str, Any]) -> Iterator[str]:
    """How many rounds, in how many processes."""
    count, most = how.get("processes", 1), how["most"]
    if count > 1:
        yield f"{most} rounds in {count} processes of each candidate; every call on new inputs"
        yield "a sample is a process: the intervals are over processes"
        return
    rounds = most if how["least"] == most else f"{how['least']} to {most}"
    until = f"until each 95 % interval is {how['width']:.1%} of its median"
    yield f"{rounds} rounds, {until}; every call on new inputs"
    yield (
        "each candidate in one process: what differs from process to process, which can be some "
        "percent of a short call, is in no interval (it is with --processes 6)"
    )


def _gpu_lines(document: dict[str, Any]) -> Iterator[str]:
    """What the GPU reported, what was discarded for it, and what it does not report."""
    rows = [row for case in document["workloads"] for row in case["results"]]
    reported = [row["conditions"] for row in rows if row.get("conditions")]
    spans = [_span(reported, *each) for each in _REPORTED]
    if known := [each for each in spans if each]:
        yield "while measuring: " + ", ".join(known)
    if any(each["reasons"] is not None for each in reported):
        seen: dict[str, int] = {}
        for each in reported:
            for name, turns in (each["reasons"] or {}).items():
                seen[name] = seen.get(name, 0) + turns
        listed = ", ".join(f"{name} (turns: {turns})" for name, turns in seen.items())
        yield f"clocks held back by: {listed or 'nothing'}"
    lost: dict[str, int] = {}
    for row in rows:
        for name, calls in row.get("discarded_for", {}).items():
            lost[name] = lost.get(name, 0) + calls
    if reported:
        listed = ", ".join(f"{name} {calls}" for name, calls in lost.items())
        yield f"calls discarded because the GPU was slowed down: {listed or 'none'}"
    missing: dict[str, list[str]] = {}
    for fact, why in document["machine"].get("not_told", {}).items():
        missing.setdefault(why, []).append(fact)
    for why, facts in missing.items():
        yield f"not reported by the GPU, so not checked: {', '.join(facts)} ({why})"


_REPORTED = (
    ("clocks_mhz", "SM clock", "MHz"),
    ("memory_mhz", "memory clock", "MHz"),
    ("temperature_c", "temperature", "C"),
    ("power_w", "power", "W"),
)


def _span(reported: list[dict[str, Any]], fact: str, name: str, unit: str) -> str:
    known = [each[fact] for each in reported if each.get(fact)]
    if not known:
        return ""
    low, high = min(each[0] for each in known), max(each[1] for each in known)
    return f"{name} {low:.0f} {unit}" if low == high else f"{name} {low:.0f} .. {high:.0f} {unit}"


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
        UsageError: the stored document has another format, machine or device.
    """
    _comparable(now, before)
    old = dict(_rows_of(before))
    return [
        Change(
            workload=key[0],
            mode=key[1],
            candidate=key[2],
            before_ns=old[key]["median_ns"],
            now_ns=row["median_ns"],
            verdict=_verdict(row, old[key]),
        )
        for key, row in _rows_of(now)
        if "median_ns" in row and "median_ns" in old.get(key, {})
    ]


def _rows_of(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Each result with its workload, mode and candidate."""
    for case in document["workloads"]:
        for row in case["results"]:
            yield (case["name"], row["mode"], row["candidate"]), row


def _verdict(row: dict[str, Any], old: dict[str, Any]) -> str:
    if row["low_ns"] > old["high_ns"]:
        return "slower"
    return "faster" if row["high_ns"] < old["low_ns"] else "same"


def behind(document: dict[str, Any], *, allowed: float = 0.05) -> list[str]:
    """Where the kernel is surely more than ``allowed`` slower than a published one in the run."""
    lines = []
    for case in document["workloads"]:
        mine = {row["mode"]: row for row in case["results"] if row["candidate"] == "kernel"}
        for row in case["results"]:
            ours = mine.get(row["mode"], {})
            if row.get("published") and "median_ns" in row and "median_ns" in ours:
                slower = ours["median_ns"] / row["median_ns"] - 1
                if slower > allowed and _is_ahead(row, ours):
                    lines.append(
                        f"{case['name']}, {row['mode']}: {duration(ours['median_ns'])}, "
                        f"{row['candidate']} takes {duration(row['median_ns'])} ({slower:+.1%})"
                    )
    return lines


def _is_ahead(row: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether another candidate is surely faster than the kernel in the same run."""
    if ratio := row.get("beside"):
        return bool(ratio["verdict"] == "faster")
    return _verdict(ours, row) == "slower"


def regressions(
    now: dict[str, Any], before: dict[str, Any], *, allowed: float = 0.05, only: Sequence[str] = ()
) -> list[str]:
    """Where the kernel is slower than a stored run says, beyond doubt.

    Slower means: the intervals do not touch, and the medians differ by more than ``allowed``. A
    workload that was measured before and is refused or missing now is a regression as well.

    Args:
        only: workloads that this run was asked for; all when empty.

    Raises:
        UsageError: the stored document has another format, machine or device.
    """
    _comparable(now, before)
    new = dict(_rows_of(now))
    lines = []
    for key, old in _rows_of(before):
        name, mode, candidate = key
        asked = mode in now["settings"]["modes"] and (name in only or not only)
        if candidate != "kernel" or "median_ns" not in old or not asked:
            continue
        what = f"{name}, {mode}"
        row = new.get(key)
        if row is None or "median_ns" not in row:
            why = (row["refused"] or row["skipped"]) if row else "missing"
            lines.append(f"{what}: measured before, and now {why}")
        elif row["median_ns"] > old["median_ns"] * (1 + allowed) and row["low_ns"] > old["high_ns"]:
            lines.append(
                f"{what}: {duration(row['median_ns'])}, was {duration(old['median_ns'])} "
                f"({row['median_ns'] / old['median_ns'] - 1:+.1%})"
            )
    return lines


def _comparable(now: dict[str, Any], before: dict[str, Any]) -> None:
    if before.get("format") != FORMAT:
        raise UsageError("the stored result is not a document of kernforge bench")
    for what in ("gpu", "cpu"):
        if now["machine"][what] != before["machine"][what]:
            there, here = (m[what] or m["cpu"] for m in (before["machine"], now["machine"]))
            raise UsageError(
                f"the stored result is of {there}, this is {here}",
                hint="times of two machines cannot be compared: store a result of this machine",
            )


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
            if row.get("cannot_tell"):
                return CANNOT_TELL
            if "median_ns" in row:
                unsure = " ~" if row.get("beside", {}).get("verdict") == "unsure" else ""
                return f"{duration(row['median_ns'])} ({row['share_of_roof']:.0%}){unsure}"
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
        "note": f"Median of a call, {mode}; all candidates in one run, in turn, each in its own "
        "process, on new inputs in each call. ~: no sure difference from the kernel, round by round. "
        "By `kernforge bench`.",
    }
