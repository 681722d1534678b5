# SPDX-License-Identifier: Apache-2.0
"""A session of ``kernforge dev`` on a terminal: the text of each round, and the state below it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from kernforge.dev import report
from kernforge.dev.rounds import GoodBuild, Round

_WAITING = "waiting for a change; Ctrl-C ends"


class View:
    """Prints the report of each round; the last line is live and shows the present step."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._line = self._console.status("starting")

    def __enter__(self) -> None:
        self._line.start()

    def __exit__(self, *_: object) -> None:
        self._line.stop()

    def state(self, state: str, words: str) -> None:
        """A stage begins or continues with another step."""
        words = words or (_WAITING if state == "idle" else "")
        self._line.update(Text.assemble((state, "bold cyan"), f" {words}"))

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """A round ended."""
        *body, last = report.text(result, good).splitlines()
        shown = Text()
        for line in body:
            failed = ": error: " in line or line.startswith("  failed: ")
            shown.append(f"{line}\n", style="red" if failed else "")
        shown.append(f"{last}\n", style="bold green" if result.ok else "bold red")
        self._console.print(shown)
