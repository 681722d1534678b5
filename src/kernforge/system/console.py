# SPDX-License-Identifier: Apache-2.0
"""The door to the reader: the only module that prints.

Results go to standard output, as text or as one JSON document; progress, notes and errors go to
standard error, so that a program can read the one while a person watches the other.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from kernforge.audit.reproduce import Verdict
    from kernforge.build.execute.outcome import Done, Failure, Outcome
    from kernforge.build.plan.graph import Action, Plan
    from kernforge.check.api import Finding
    from kernforge.errors import KernforgeError
    from kernforge.store.eviction import Removed, Shelf
    from kernforge.system.live_view import Live

_BETWEEN_LINES_S = 2.0
_WORTH_A_LINE_S = 0.3
_MB = 1_000_000
_SHOWN = 5


class Report:
    """What a command says.

    Args:
        as_json: whether the result is one JSON document.
        quiet: whether progress is left out.
        failures: whether a compiler's errors are printed as they come; not for a caller whose own
            error holds them.
    """

    def __init__(
        self, *, as_json: bool = False, quiet: bool = False, failures: bool = True
    ) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self._failures = failures
        self._watched = sys.stderr.isatty() and not quiet
        self._live: Live | None = None
        self._result: Any = None
        self._indent: int | None = 2
        self._lock = threading.Lock()

    # -- results ---------------------------------------------------------------------------

    def result(self, document: Any, text: str) -> None:
        """Tell a command's result, once: the document for programs, the text for people.

        The document is printed at the command's end, with the error if there is one: a program
        reads one document, however the command ended.
        """
        if self.as_json:
            self._result = document
        elif text:
            print(text, flush=True)

    def line(self, document: Any, text: str) -> None:
        """Print one of several results: a line of JSON, or text."""
        if self.as_json:
            self._indent = None
            print(json.dumps(document, default=str), flush=True)
        elif text:
            print(text, flush=True)

    def close(self) -> None:
        """Print the document of the result, if there is one."""
        if self._result is not None:
            print(json.dumps(self._result, indent=self._indent, default=str), flush=True)
            self._result = None

    def error(self, error: KernforgeError) -> None:
        """Print what went wrong and what to do; with a result that is a list, beside it alone."""
        if self.as_json:
            told = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
            if self._result is None or isinstance(self._result, dict):
                self._result = {**(self._result or {}), **told}
            self.close()
        self._say(f"error: {error.message}")
        if error.hint:
            self._say(f"hint: {error.hint}")

    def note(self, text: str) -> None:
        """Say something once, beside the result."""
        if not self._quiet:
            self._say(text)

    # -- progress of downloads -------------------------------------------------------------

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Begin a download; returns what to call with each number of bytes that came."""
        size = f" ({total / _MB:.0f} MB)" if total else ""
        self.note(f"fetching {what}{size}")
        got = 0
        last = time.monotonic()

        def advance(count: int) -> None:
            nonlocal got, last
            got += count
            now = time.monotonic()
            if now - last < _BETWEEN_LINES_S or self._quiet:
                return
            last = now
            share = f" of {total / _MB:.0f} MB" if total else " MB"
            self._say(f"  {got / _MB:.1f}{share}")

        return advance

    # -- progress of builds ----------------------------------------------------------------

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """A build begins."""
        if self._watched:
            from kernforge.system.live_view import Live  # noqa: PLC0415 - only a terminal needs it

            self._live = Live(actions, usage)

    def started(self, action: Action) -> None:
        """An action begins."""
        if self._live:
            self._live.started(action)

    def ended(self, action: Action, done: Done) -> None:
        """An action ended."""
        if self._live:
            self._live.ended(action)
        if done.failure:
            if self._failures:
                self._say(failure_text(done.failure, done.where))
        elif done.completed and done.completed.wall_s >= _WORTH_A_LINE_S:
            ended = done.completed
            where = f"  on {done.where}" if done.where else ""
            self.note(
                f"  {ended.wall_s:5.1f} s  {size(ended.peak_bytes):>8}  {action.title}{where}"
            )

    def finished(self) -> None:
        """A build ends."""
        if self._live:
            self._live.stop()
            self._live = None

    def _say(self, text: str) -> None:
        with self._lock:
            if self._live:
                self._live.say(text)
            else:
                print(text, file=sys.stderr, flush=True)


def size(count: int) -> str:
    """Bytes as people read them; nothing for none."""
    if not count:
        return ""
    if count < _MB:
        return f"{max(1, round(count / 1e3))} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / _MB:.0f} MB"  # noqa: PLR2004


def spent_document(outcome: Outcome) -> dict[str, Any]:
    """Where a build's time went, for programs."""
    return {
        "ran": outcome.ran,
        "reused": outcome.reused,
        "from_shared_store": outcome.shared,
        "cpu_s": outcome.cpu_s,
        "wall_s": outcome.wall_s,
        "peak_bytes": max((one.peak_bytes for one in outcome.spent), default=0),
        "spent": [asdict(one) for one in outcome.spent],
    }


def spent_text(outcome: Outcome) -> str:
    """Where a build's time went, for people."""
    lines = [
        f"{outcome.ran} actions ran in {outcome.wall_s:.1f} s ({outcome.cpu_s:.1f} CPU-s), "
        f"{outcome.reused} from the store"
        + (f", {outcome.shared} of them from the shared store" if outcome.shared else "")
    ]
    worth = [one for one in outcome.spent[:_SHOWN] if one.wall_s >= _WORTH_A_LINE_S]
    rows = [
        (f"  {o.wall_s:.1f} s", f"{o.cpu_s:.1f} CPU-s", size(o.peak_bytes), o.title, o.where)
        for o in worth
    ]
    return "\n".join([*lines, *([table(rows)] if rows else [])])


def cache_document(
    root: Path, shelves: Sequence[Shelf], limit: int, removed: Removed | None
) -> dict[str, Any]:
    """What the store holds, for programs."""
    document = {
        "location": str(root),
        "limit": limit,
        "size": sum(shelf.size for shelf in shelves),
        "shelves": {shelf.name: asdict(shelf) for shelf in shelves},
    }
    return document | ({"removed": asdict(removed)} if removed else {})


def cache_text(root: Path, shelves: Sequence[Shelf], limit: int, removed: Removed | None) -> str:
    """What the store holds, for people."""
    rows = [
        (
            shelf.name,
            str(shelf.entries),
            size(shelf.size) or "0 MB",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(shelf.oldest)) if shelf.oldest else "",
        )
        for shelf in shelves
    ]
    total = sum(shelf.size for shelf in shelves)
    lines = [f"{root}: {size(total) or '0 MB'} of {size(limit)}"]
    if removed:
        kept = f"; {removed.kept} more are in use by a running build" if removed.kept else ""
        lines.append(f"removed {removed.entries} entries, {size(removed.size) or '0 MB'}{kept}")
    return "\n".join([*lines, table(rows, head=("shelf", "entries", "size", "oldest use"))])


def failure_text(failure: Failure, where: str = "") -> str:
    """A compiler's error as it wrote it, with what it was for and how to see it again."""
    on = f" on {where}" if where else ""
    return "\n".join(
        (
            f"{failure.action.title}: exit status {failure.returncode}{on}",
            f"for {', '.join(failure.action.variants)}",
            failure.output,
            f"repeat it by hand{on}:\n  {failure.repeat}",
        )
    )


def table(rows: Iterable[Sequence[str]], *, head: Sequence[str] = ()) -> str:
    """Lay rows out in columns as wide as their widest cell."""
    cells = [list(head), *map(list, rows)] if head else list(map(list, rows))
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def graph_document(plan: Plan, known: Collection[str]) -> dict[str, Any]:
    """A plan for programs: what would run, on what, for whom.

    Args:
        plan: the build's plan.
        known: keys of the actions whose results the store has.
    """
    actions = [
        {
            "key": action.key,
            "title": action.title,
            "argv": list(action.argv),
            "inputs": {i.path: i.digest for i in action.inputs},
            "outputs": list(action.outputs),
            "variants": list(action.variants),
            "cached": action.key in known,
        }
        for action in plan.actions
    ]
    return {"actions": actions, "variants": [artifact.target.name for artifact in plan.artifacts]}


def graph_text(plan: Plan, known: Collection[str]) -> str:
    """A plan for people."""
    rows = [
        (action.key[:12], "in store" if action.key in known else "to run", action.title)
        for action in plan.actions
    ]
    return table(rows, head=("key", "state", "action"))


def finding_document(finding: Finding) -> dict[str, str]:
    """A finding of a check for programs."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "where": str(finding.where),
        "message": finding.message,
        "hint": finding.hint,
    }


def finding_text(finding: Finding) -> str:
    """A finding of a check for people."""
    hint = f"\n    {finding.hint}" if finding.hint else ""
    return f"{finding.severity}: {finding.where}: {finding.message} [{finding.rule}]{hint}"


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """What came of building a variant again, for programs."""
    return {
        "variant": verdict.variant,
        "identical": not verdict.differences,
        "differences": [asdict(one) for one in verdict.differences],
        "notes": list(verdict.notes),
    }


def verdict_text(verdict: Verdict) -> str:
    """What came of building a variant again, for people."""
    lines = [f"{verdict.variant}: {'DIFFERENT' if verdict.differences else 'identical'}"]
    for one in verdict.differences:
        lines.append(f"  {one.file}: {one.reason}")
        if one.offset is not None:
            lines += [f"    there {one.there or '(end)'}", f"    here  {one.here or '(end)'}"]
    return "\n".join((*lines, *(f"  note: {note}" for note in verdict.notes)))
