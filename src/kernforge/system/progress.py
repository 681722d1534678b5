# SPDX-License-Identifier: Apache-2.0
"""The progress of a build: a live view on a terminal, elsewhere a line from time to time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

EVERY_S = 10.0
"""Seconds between two lines."""
_NAMES, _ROWS = 3, 12


def repeat(
    text: Callable[[], str], say: Callable[[str], None], every_s: float
) -> Callable[[], None]:
    """Print a line from time to time, in a background thread; returns what ends that."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            say(text())

    threading.Thread(target=run, daemon=True).start()
    return over.set


class ProgressLines:
    """The running actions of a build as a line from time to time.

    Args:
        total: number of actions.
        usage: gives the memory in bytes of running actions by key.
        say: prints a line.
    """

    def __init__(
        self,
        total: int,
        usage: Callable[[], Mapping[str, int]],
        say: Callable[[str], None],
        every_s: float = EVERY_S,
    ) -> None:
        self._total, self._usage = total, usage
        self._ended = 0
        self._running: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self.say, self._every_s = say, every_s
        self._stop: Callable[[], None] | None = None

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        with self._lock:
            self._running[key] = (time.monotonic(), title)
        if self._stop is None:  # a build without actions to run shows nothing
            self._stop = self._show()

    def ended(self, key: str) -> None:
        """An action ended."""
        with self._lock:
            self._running.pop(key, None)
            self._ended += 1

    def stop(self) -> None:
        """The build ends."""
        if self._stop:
            self._stop()

    def _show(self) -> Callable[[], None]:
        """Begin to show it; returns what ends that."""
        return repeat(self.text, self.say, self._every_s)

    def _longest_first(self) -> list[tuple[str, str, float]]:
        """Key, title and seconds of each running action."""
        now = time.monotonic()
        with self._lock:
            running = sorted((start, title, key) for key, (start, title) in self._running.items())
        return [(key, title, now - start) for start, title, key in running]

    def text(self) -> str:
        """The line: how many actions ended, and which run for longest."""
        running, used = self._longest_first(), sum(self._usage().values())
        names = [f"{title} ({seconds:.0f} s)" for _, title, seconds in running[:_NAMES]]
        more = [f"{len(running) - _NAMES} more"] if len(running) > _NAMES else []
        memory = f", {used / 1e9:.1f} GB" if used else ""
        return (
            f"  {self._ended} of {self._total} actions ended, {len(running)} running{memory}: "
            f"{', '.join([*names, *more])}"
        )


class LiveView(ProgressLines):
    """A few lines at the end of standard error that are updated while a build runs."""

    def __init__(
        self, total: int, usage: Callable[[], Mapping[str, int]], console: Console | None = None
    ) -> None:
        from rich.console import Console as Terminal  # noqa: PLC0415 - only a terminal needs it
        from rich.live import Live  # noqa: PLC0415

        super().__init__(total, usage, self._print_above)
        console = console or Terminal(stderr=True)
        self._screen = Live(
            get_renderable=self._draw, console=console, refresh_per_second=4, transient=True
        )

    def _print_above(self, text: str) -> None:
        self._screen.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self) -> Callable[[], None]:
        self._screen.start()
        return self._screen.stop

    def _draw(self) -> Table:
        from rich.table import Table  # noqa: PLC0415

        running, usage = self._longest_first(), self._usage()
        table = Table.grid(padding=(0, 2))
        for key, title, seconds in running[:_ROWS]:
            table.add_row(f"{seconds:6.1f} s", f"{_gigabytes(usage.get(key, 0)):>8}", title)
        hidden = len(running) - _ROWS
        more = f", {hidden} of them not shown" if hidden > 0 else ""
        table.add_row(
            f"{self._ended:>4} of {self._total}",
            _gigabytes(sum(usage.values())),
            f"{len(running)} running{more}",
        )
        return table


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count else ""
