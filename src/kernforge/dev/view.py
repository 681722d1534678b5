# SPDX-License-Identifier: Apache-2.0
"""The live view of ``kernforge dev`` on a terminal: the state, and the text of the last round."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kernforge.dev import report

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kernforge.dev.rounds import GoodBuild, Round

_PER_SECOND = 8


class View:
    """The state of the session in one line, and below it the report of the last round.

    Args:
        console: console to draw on; standard output by default.
    """

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._state, self._words, self._since = "starting", "", time.monotonic()
        self._report = Text()
        self._spinner = Spinner("dots")
        self._lock = threading.Lock()
        self._screen = Live(
            get_renderable=self._draw,
            console=console or Console(),
            refresh_per_second=_PER_SECOND,
            vertical_overflow="ellipsis",
        )

    def __enter__(self) -> None:
        self._screen.start()

    def __exit__(self, *_: object) -> None:
        self._state, self._words = "ended", ""
        self._screen.stop()

    def state(self, state: str, words: str) -> None:
        """A stage begins or continues with another step."""
        with self._lock:
            if state != self._state:
                self._since = time.monotonic()
            self._state, self._words = state, words

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """A round ended."""
        *body, last = report.text(result, good).splitlines()
        shown = Text(f"\n{last}", style="bold green" if result.ok else "bold red")
        for line in body:
            failed = ": error: " in line or line.startswith("  failed: ")
            shown.append(f"\n{line}", style="red" if failed else "not bold default")
        with self._lock:
            self._report = shown

    def _draw(self) -> RenderableType:
        with self._lock:
            return Panel(Group(self._status(), self._report), title=self._title, title_align="left")

    def _status(self) -> RenderableType:
        line = Table.grid(padding=(0, 1))
        if self._state in ("idle", "ended"):
            words = self._words or "waiting for a change; Ctrl-C ends"
            line.add_row(Text(self._state, style="bold"), "" if self._state == "ended" else words)
        else:
            seconds = f"{time.monotonic() - self._since:.1f} s"
            line.add_row(self._spinner, Text(self._state, style="bold cyan"), seconds, self._words)
        return line
