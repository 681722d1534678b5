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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from kernforge.build import Failure
    from kernforge.check import Finding
    from kernforge.errors import KernforgeError
    from kernforge.plan import Action, Plan
    from kernforge.run import Completed

_BETWEEN_LINES_S = 2.0
_WORTH_A_LINE_S = 0.3
_MB = 1_000_000


class Report:
    """What a command says.

    Args:
        as_json: whether the result is one JSON document.
        quiet: whether progress is left out.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json = as_json
        self._quiet = quiet
        self._live = sys.stderr.isatty() and not quiet
        self._lock = threading.Lock()

    # -- results ---------------------------------------------------------------------------

    def result(self, document: Any, text: str) -> None:
        """Print a command's result: the document for programs, the text for people."""
        if self.as_json:
            print(json.dumps(document, indent=2, default=str))
        elif text:
            print(text)

    def error(self, error: KernforgeError) -> None:
        """Print what went wrong and what to do."""
        if self.as_json:
            document = {"error": type(error).__name__, "message": error.message}
            print(json.dumps({**document, "hint": error.hint}, indent=2))
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

    def started(self, action: Action) -> None:
        """An action begins."""
        if self._live:
            self._say(f"  ... {action.title}")

    def ended(self, action: Action, done: Completed | None, failure: Failure | None) -> None:
        """An action ended."""
        if failure:
            self._say(failure_text(failure))
        elif done and done.wall_s >= _WORTH_A_LINE_S:
            self.note(f"  {done.wall_s:5.1f} s  {action.title}")

    def _say(self, text: str) -> None:
        with self._lock:
            print(text, file=sys.stderr, flush=True)


def failure_text(failure: Failure) -> str:
    """A compiler's error as it wrote it, with what it was for and how to see it again."""
    return "\n".join(
        (
            f"{failure.action.title}: exit status {failure.returncode}",
            f"for {', '.join(failure.action.variants)}",
            failure.output,
            f"repeat it by hand:\n  {failure.repeat}",
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
