# SPDX-License-Identifier: Apache-2.0
"""A round of ``kernforge dev`` for programs, as plain text, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Self

from rich.console import Console as Terminal
from rich.text import Text

from kernforge.bench.report import duration
from kernforge.binary import kernel_usage
from kernforge.builder.api import uncompiled_notes
from kernforge.dev.rounds import GoodBuild, Round
from kernforge.source import diagnostics
from kernforge.system.console import Console
from kernforge.system.tables import table

FAILED_SHOWN = 5
KERNELS_SHOWN = 16
DIAGNOSTICS_SHOWN = 4
_DONE = {"build": "built", "test": "tested", "bench": "measured"}


def document(result: Round, good: GoodBuild | None = None) -> dict[str, Any]:
    """A round as JSON values for programs, with the last good build."""
    return {
        **asdict(replace(result, diagnostics=(), tested=(), kernels=())),
        "ok": result.ok,
        "diagnostics": [asdict(each) | {"source": lines} for each, lines in result.diagnostics],
        "tested": [
            {"variant": each.variant, "counts": each.counts, "seconds": round(each.wall_s, 3)}
            for each in result.tested
        ],
        "failed": result.failed,
        "kernels": [kernel_usage.document(kernel) for kernel in result.kernels],
        "last_good": good and asdict(good),
    }


def text(result: Round, good: GoodBuild | None) -> str:
    """A round as text for people."""
    return "\n".join(_lines(result, good))


def _lines(result: Round, good: GoodBuild | None) -> Iterator[str]:
    yield f"round {result.number}: {result.work.reason}"
    yield from _problems(result)
    if result.kernels and not result.output:
        rows = kernel_usage.rows(result.kernels[:KERNELS_SHOWN])
        yield from table(rows, head=kernel_usage.HEAD).splitlines()
        yield from _rest(len(result.kernels) - KERNELS_SHOWN)
    yield from _tests(result)
    yield from map(_time, result.times)
    if result.times:
        yield "(a short run: `kernforge bench` measures)"
    if result.unmeasured:
        yield f"not measured: {result.unmeasured}"
    if result.ok:
        yield from uncompiled_notes(result.uncompiled)
    yield _summary(result, good)


def _rest(count: int) -> Iterator[str]:
    if count > 0:
        yield f"and {count} more"


def _problems(result: Round) -> Iterator[str]:
    """The errors of a round's build, with the lines of source."""
    if result.error:
        yield result.error["message"]
        if result.error["hint"]:
            yield f"hint: {result.error['hint']}"
    errors = 0
    for diagnostic, source in result.diagnostics:
        errors += diagnostic.severity == "error"
        if errors <= DIAGNOSTICS_SHOWN:
            yield diagnostics.title(diagnostic)
            yield from source
    yield from _rest(errors - DIAGNOSTICS_SHOWN)
    if result.output and not result.diagnostics:
        for title, output in result.output:
            yield f"{title}\n{output}"


def _tests(result: Round) -> Iterator[str]:
    """The results of the tests."""
    for tested in result.tested:
        counts = ", ".join(f"{count} {name}" for name, count in tested.counts.items() if count)
        yield f"{tested.variant}: {counts or 'no test'} in {tested.wall_s:.1f} s"
    alike: dict[tuple[str, str], list[str]] = {}
    for row in result.failed:
        alike.setdefault((row["outcome"], row["reason"]), []).append(row["test"])
    for (outcome, reason), tests in list(alike.items())[:FAILED_SHOWN]:
        more = f" and {len(tests) - 1} more, alike" if len(tests) > 1 else ""
        yield f"  {outcome}: {tests[0]}{more}"
        yield from (f"    {line}" for line in reason.splitlines()[:FAILED_SHOWN])
    yield from _rest(sum(map(len, list(alike.values())[FAILED_SHOWN:])))
    for name, reason in result.untested.items():
        yield f"{name}: not tested: {reason}"


def _time(row: Mapping[str, Any]) -> str:
    """A time, compared with that of the last good build."""
    case = f"{row['workload']}, {row['mode']}"
    if row["median_ns"] is None:
        return f"{case}: no time: {row['refused'] or row['skipped']}"
    now = f"{case}: {duration(row['median_ns'])}"
    if row["ratio"] is None:
        return f"{now} (nothing to compare with)"
    value, low, high = (row["ratio"][name] for name in ("value", "low", "high"))
    return f"{now}, {value:.3f} of the last good build's (from {low:.3f} to {high:.3f})"


def _summary(result: Round, good: GoodBuild | None) -> str:
    """The last line of a report."""
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in result.seconds.items())
    if result.ok:
        untested = result.untested and all(tested.skip_reason for tested in result.tested)
        missing = f", not compiled for {', '.join(result.uncompiled)}" if result.uncompiled else ""
        return f"{'built, not tested' if untested else 'good'}{missing}: {times}"
    rest = "" if good is None else "; the last good build stays"
    stage = next(reversed(result.seconds), "build")
    outcome = "tests fail" if result.tested and not result.error else f"it cannot be {_DONE[stage]}"
    return f"{outcome}: {times}{rest}"


_WAITING = "waiting for a change; Ctrl-C ends"


class View:
    """Prints the report of each round as text or JSON, and the begin of each stage.

    Args:
        terminal: has colours, and a live last line with the present step; None for plain lines.
    """

    def __init__(self, console: Console, terminal: Terminal | None = None) -> None:
        self._console, self._terminal = console, terminal
        self._line = terminal.status("starting") if terminal else None
        self._state = ""

    def __enter__(self) -> Self:
        if self._line:
            self._line.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._line:
            self._line.stop()

    def state(self, state: str, words: str) -> None:
        """A stage begins or continues with another step."""
        if self._line:
            words = words or (_WAITING if state == "idle" else "")
            self._line.update(Text.assemble((state, "bold cyan"), f" {words}"))
        elif state != self._state:
            self._console.note(f"{state} {words}".strip())
        self._state = state

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """A round ended."""
        words = text(result, good)
        if not self._terminal:
            self._console.line(document(result, good), words)
            return
        *body, last = words.splitlines()
        shown = Text()
        for line in body:
            failed = ": error: " in line or line.startswith("  failed: ")
            shown.append(f"{line}\n", style="red" if failed else "")
        shown.append(last, style="bold green" if result.ok else "bold red")
        self._terminal.print(shown)
