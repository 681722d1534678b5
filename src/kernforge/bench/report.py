# SPDX-License-Identifier: Apache-2.0
"""A report as text and as JSON, its refusals and its regressions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from kernforge.bench.run import WIDTH, Case, Report, Result
from kernforge.bench.stats import FEWEST
from kernforge.bench.workload import MEANING, Mode
from kernforge.system.tables import table

FORMAT = "kernforge-bench-3"
ALLOWED = 0.05
"""Share by which the kernel may be slower than one of ``--against``."""
HEAD = (
    "workload",
    "candidate",
    "median of a call",
    "95 % interval",
    "ratio to the kernel",
    "GB/s",
    "of the roof",
)
INCONCLUSIVE = "inconclusive"
_LEGEND = """
ratio to the kernel: of the times, round by round, with its 95 % interval; ~: inconclusive
GB/s: bytes that must be moved (10^9 a second), inputs and results once unless declared
roof: the time of a copy of as many bytes (memory), or of torch's product with as many operations
above: faster than the roof: a cache served it, or too many bytes or operations are declared"""


def duration(nanoseconds: float) -> str:
    """A time with its unit, for people."""
    for limit, unit, scale in ((1e3, "ns", 1.0), (1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if nanoseconds < limit:
            return f"{nanoseconds / scale:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


# Text


def text(report: Report) -> str:
    """The report for people."""
    parts = [*conditions(report)]
    for mode in report.settings.modes:
        parts += [f"\n{mode}: {MEANING[mode]}", table(rows(report, mode), head=HEAD)]
        parts += [
            f"{case.name}, {each.candidate}: {each.refused or each.skipped}"
            for case in report.workloads
            for each in case.of(mode)
            if not each.active
        ]
        changes = (each.changed for case in report.workloads for each in case.of(mode))
        parts += dict.fromkeys(filter(None, changes))
    return "\n".join([*parts, _LEGEND])


def conditions(report: Report) -> Iterator[str]:
    """The conditions of a report, a line each: machine, rounds, clocks of the GPU."""
    where, most = report.machine, report.settings.most
    if report.partial:
        yield "PARTIAL: the run was interrupted; the last workload has fewer rounds"
    gpu = where.gpu
    known = f", driver {gpu.driver or 'unknown'}, CUDA {where.cuda}" if gpu else ""
    yield f"{where.device}{known}, torch {where.torch}"
    yield (
        f"{FEWEST} to {most} rounds, until each 95 % interval is {WIDTH:.1%} of its median; new "
        "inputs in each round, a result of each turn verified"
    )
    if gpu and gpu.clocks_mhz:
        yield "SM clock {:.0f} to {:.0f} MHz".format(*gpu.clocks_mhz)
    if gpu and gpu.unavailable:
        yield f"the GPU's clock is not known: {gpu.unavailable}"


def rows(report: Report, mode: Mode) -> list[tuple[str, ...]]:
    """The table of a mode: of each workload the fastest first, those without a time last."""
    lines = []
    for case in report.workloads:
        measured = sorted(case.of(mode), key=lambda each: each.median_ns or math.inf)
        lines += [(case.name, each.candidate, *cells(case, each)) for each in measured]
    return lines


def cells(case: Case, result: Result) -> tuple[str, ...]:
    """A result's cells below ``HEAD``, from the median on."""
    if not (result.median_ns and result.low_ns and result.high_ns):
        return ("refused" if result.refused else "skipped", "", "", "", "")
    low, high = (end / result.median_ns - 1 for end in (result.low_ns, result.high_ns))
    span = f"{low:+.1%} .. {high:+.1%}"
    if result.inconclusive:
        return (INCONCLUSIVE, span, "", "", "")
    compared = ""
    if ratio := result.ratio:
        mark = "~" if ratio.verdict == INCONCLUSIVE else ratio.verdict
        compared = f"{ratio.value:.3f} ({ratio.low:.3f} .. {ratio.high:.3f}) {mark}"
    share = result.roof_ns / result.median_ns
    return (
        duration(result.median_ns),
        span,
        compared,
        f"{case.bytes / result.median_ns:.1f}" if case.bytes else "",
        f"{share:.1%} ({result.bound}){' above' if share > 1 else ''}" if share else "",
    )


# JSON


def document(report: Report) -> dict[str, Any]:
    """The report as JSON values, of format ``kernforge-bench-3``."""
    more = {"regressions": regressions(report), "table": summary(report)}
    return {"format": FORMAT, **asdict(report), **more}


def summary(report: Report) -> dict[str, Any]:
    """The first mode as a table for a page of results: ``title``, ``head``, ``rows``, ``note``."""
    mode = report.settings.modes[0]
    return {
        "title": report.title,
        "head": list(HEAD),
        "rows": [list(row) for row in rows(report, mode)],
        "note": f"Median of a call, {mode}: {MEANING[mode]}; all candidates in one run, in turn, "
        "on new inputs in each round, results verified. ~: no sure difference from the kernel. By "
        "`kernforge bench`.",
    }


# Verdicts


def refusals(report: Report) -> list[str]:
    """Workloads that cannot be run and refused candidates, with the reasons."""
    failed = [f"{name}: {why}" for name, why in report.failed.items()]
    refused = {
        (case.name, each.candidate, each.refused): each.mode
        for case in report.workloads
        for each in reversed(case.results)
        if each.refused and not report.partial
    }
    return failed + [f"{w}, {name}, {mode}: {why}" for (w, name, why), mode in refused.items()]


def regressions(report: Report) -> list[str]:
    """Workloads on which the kernel is beyond doubt slower than one of ``--against``."""
    lines = []
    for case in report.workloads:
        for each in case.results:
            ours, ratio = case.of(each.mode)[0].median_ns, each.ratio
            if each.kind != "published" or not (ours and each.median_ns and ratio):
                continue
            if ratio.verdict == "faster" and 1 / ratio.value > 1 + ALLOWED:
                lines.append(
                    f"{case.name}, {each.mode}: {duration(ours)}, {each.candidate} takes "
                    f"{duration(each.median_ns)} ({1 / ratio.value - 1:+.1%})"
                )
    return lines
