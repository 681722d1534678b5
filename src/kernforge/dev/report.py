# SPDX-License-Identifier: Apache-2.0
"""A round of ``kernforge dev`` for programs, and as plain text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernforge.bench.text import duration
from kernforge.binary import kernel_usage
from kernforge.source import diagnostics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.dev.rounds import Good, Ratio, Round

FAILED_SHOWN = 5
KERNELS_SHOWN = 16
COMPLAINTS_SHOWN = 4
SHORT = "a short run: `kernforge bench` measures"
_DONE = {"build": "built", "test": "tested", "bench": "measured"}


def document(one: Round, good: Good | None = None) -> dict[str, Any]:
    """A round for programs.

    Args:
        one: the round.
        good: the last good build, whose figures stand in when this one could not be built.
    """
    return {
        "round": one.number,
        "ok": one.ok,
        "exit_code": one.exit_code,
        "changed": list(one.files),
        "reason": one.work.reason,
        "seconds": dict(one.seconds),
        "error": dict(one.error) if one.error else None,
        "build": {
            "variants": {name: str(path) for name, path in one.variants.items()},
            "ran": one.ran,
            "diagnostics": [
                {**asdict(each.diagnostic), "source": list(each.source)} for each in one.complaints
            ],
            "output": [{"action": title, "text": text} for title, text in one.output],
        },
        "tests": {
            "only": None if one.work.tests is None else list(one.work.tests),
            "variants": [
                {
                    "variant": each.variant,
                    "counts": each.counts,
                    "seconds": round(each.wall_s, 3),
                }
                for each in one.tested
            ],
            "failed": [dict(row) for row in one.failed],
            "failed_before": [dict(row) for row in one.failing],
            "left_out": dict(one.untested),
        },
        "kernels": [kernel_usage.document(kernel) for kernel in one.kernels],
        "not_read": one.unread,
        "times": [asdict(each) for each in one.ratios],
        "not_measured": one.unmeasured,
        "last_good": good
        and {
            "round": good.round,
            "variants": {name: str(path) for name, path in good.variants.items()},
            "figures": good.figures,
        },
    }


def text(one: Round, good: Good | None) -> str:
    """A round for people, in plain lines."""
    return "\n".join(_lines(one, good))


def _lines(one: Round, good: Good | None) -> Iterator[str]:
    yield f"round {one.number}: {one.work.reason}"
    yield from problems(one)
    if one.kernels and not one.output:
        cells = [kernel_usage.HEAD, *kernel_usage.rows(one.kernels[:KERNELS_SHOWN])]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        for row in cells:
            padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            yield "  ".join(padded).rstrip()
        if len(one.kernels) > KERNELS_SHOWN:
            yield f"and {len(one.kernels) - KERNELS_SHOWN} more"
    if one.unread:
        yield f"not read: {one.unread}"
    yield from tests(one)
    yield from map(time, one.ratios)
    if one.ratios:
        yield f"({SHORT})"
    if one.unmeasured:
        yield f"not measured: {one.unmeasured}"
    yield summary(one, good)


def problems(one: Round) -> Iterator[str]:
    """What kept a round from building, with the lines of source."""
    if one.error:
        yield f"{one.error['message']}"
        if one.error["hint"]:
            yield f"hint: {one.error['hint']}"
    shown = 0
    for each in one.complaints:
        shown += each.diagnostic.severity == "error"
        if shown > COMPLAINTS_SHOWN:
            break
        yield diagnostics.title(each.diagnostic)
        yield from each.source
    count = sum(each.diagnostic.severity == "error" for each in one.complaints)
    if count > COMPLAINTS_SHOWN:
        yield f"and {count - COMPLAINTS_SHOWN} more errors"
    if one.output and not one.complaints:
        for title, words in one.output:
            yield f"{title}\n{words}"


def tests(one: Round) -> Iterator[str]:
    """How the tests went."""
    for each in one.tested:
        counts = ", ".join(f"{count} {name}" for name, count in each.counts.items() if count)
        yield f"{each.variant}: {counts or 'no test'} in {each.wall_s:.1f} s"
    for row in one.failed[:FAILED_SHOWN]:
        yield f"  {row['outcome']}: {row['test']}"
        yield from (f"    {line}" for line in row["reason"].splitlines()[:FAILED_SHOWN])
    if len(one.failed) > FAILED_SHOWN:
        yield f"  and {len(one.failed) - FAILED_SHOWN} more"
    if one.failing:
        yield f"  {len(one.failing)} failed before and were not run now"
    for name, why in one.untested.items():
        yield f"{name}: not tested: {why}"


def time(one: Ratio) -> str:
    """A time, beside that of the last good build."""
    what = f"{one.workload}, {one.mode}"
    if one.refused:
        return f"{what}: no time: {one.refused}"
    now = f"{what}: {duration(one.median_ns)}"
    if one.ratio is None or one.low is None or one.high is None:
        return f"{now} (nothing to compare with)"
    return f"{now}, {one.ratio:.3f} of the last good build's (from {one.low:.3f} to {one.high:.3f})"


def verdict(one: Ratio) -> str:
    """``faster``, ``slower`` or ``same``: the latter when the interval holds both."""
    if one.low is None or one.high is None:
        return ""
    return "slower" if one.low > 1 else "faster" if one.high < 1 else "same"


def summary(one: Round, good: Good | None) -> str:
    """One line at the end."""
    took = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in one.seconds.items())
    if one.ok:
        nothing = one.untested and all(each.idle for each in one.tested)
        return f"{'built, not tested' if nothing else 'good'}: {took}"
    kept = "" if good is None else "; the last good build stays"
    stage = next(reversed(one.seconds), "build")
    what = "tests fail" if one.tested and not one.error else f"it cannot be {_DONE[stage]}"
    return f"{what}: {took}{kept}"
