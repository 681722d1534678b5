# SPDX-License-Identifier: Apache-2.0
"""The progress of a build: an updated line on a terminal, elsewhere one from time to time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

EVERY_S = 10.0
"""Seconds between two lines."""
_NAMES = 3


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
    """The running actions of a build as a line from time to time."""

    def __init__(self, total: int, say: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._total, self.say, self._every_s = total, say, every_s
        self._ended = 0
        self._running: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
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

    def text(self) -> str:
        """The line: how many actions ended, and which run for longest."""
        now = time.monotonic()
        with self._lock:
            running = sorted(self._running.values())
        names = [f"{title} ({now - start:.0f} s)" for start, title in running[:_NAMES]]
        more = [f"{len(running) - _NAMES} more"] if len(running) > _NAMES else []
        return (
            f"  {self._ended} of {self._total} actions ended, {len(running)} running: "
            f"{', '.join([*names, *more])}"
        )


class LiveLine(ProgressLines):
    """The same line at the end of standard error, updated while a build runs."""

    def __init__(self, total: int, console: Console | None = None) -> None:
        from rich.console import Console as Terminal  # noqa: PLC0415 - only a terminal needs it
        from rich.live import Live  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        super().__init__(total, self._print_above)
        self._screen = Live(
            get_renderable=lambda: Text(self.text()),
            console=console or Terminal(stderr=True),
            refresh_per_second=4,
            transient=True,
        )

    def _print_above(self, text: str) -> None:
        self._screen.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self) -> Callable[[], None]:
        self._screen.start()
        return self._screen.stop
