# SPDX-License-Identifier: Apache-2.0
"""The progress of a build where there is no terminal: a line from time to time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

EVERY_S = 10.0
"""Seconds between two lines."""
_SHOWN = 3


def repeat(
    text: Callable[[], str], say: Callable[[str], None], every_s: float
) -> Callable[[], None]:
    """Print a line from time to time, in a thread of its own; returns what ends that."""
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
        self._running: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._say, self._every_s = say, every_s
        self._stop: Callable[[], None] | None = None

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        with self._lock:
            self._running[key] = (title, time.monotonic())
        if self._stop is None:  # a build without actions to run shows nothing
            self._stop = self._show()

    def ended(self, key: str) -> None:
        """An action ended."""
        with self._lock:
            self._running.pop(key, None)
            self._ended += 1

    def print_above(self, text: str) -> None:
        """Print another line."""
        self._say(text)

    def stop(self) -> None:
        """The build ends."""
        if self._stop:
            self._stop()

    def _show(self) -> Callable[[], None]:
        """Begin to show it; returns what ends that."""
        return repeat(self.text, self._say, self._every_s)

    def text(self) -> str:
        """The line: how many actions ended, and which run for longest."""
        now, used = time.monotonic(), sum(self._usage().values())
        with self._lock:
            running = sorted(self._running.values(), key=lambda row: row[1])
        shown = [f"{title} ({now - start:.0f} s)" for title, start in running[:_SHOWN]]
        more = [f"{len(running) - _SHOWN} more"] if len(running) > _SHOWN else []
        memory = f", {used / 1e9:.1f} GB" if used else ""
        return (
            f"  {self._ended} of {self._total} actions ended, {len(running)} running{memory}: "
            f"{', '.join([*shown, *more])}"
        )
