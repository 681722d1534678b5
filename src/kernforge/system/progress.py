# SPDX-License-Identifier: Apache-2.0
"""What is told about a build and its downloads while they run, and a line that shows it."""

from __future__ import annotations

import contextlib
import logging
import shutil  # noqa: TID251 - only the size of the terminal
import sys
import threading
from collections.abc import Callable

from kernforge.errors import printable
from kernforge.system.forks import free_in_child
from kernforge.system.tables import size

ERASE = "\r\x1b[K"
"""Moves to the begin of a terminal's line, and erases it."""
_log = logging.getLogger("kernforge")
_writing = free_in_child(threading.Lock())


class Progress:
    """Listener of a build and its downloads; this one writes to the log."""

    def note(self, text: str) -> None:
        """Show a note to the user."""
        _log.info("%s", text)

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Begin a download; returns a function to call with each number of received bytes."""
        _log.info("fetching %s%s", what, f" ({size(total)})" if total else "")
        return lambda _count: None

    def planned(self, actions: int) -> None:
        """Report the start of the build, with all its actions."""
        _log.info("%d actions", actions)

    def started(self, key: str, title: str) -> None:
        """Report the start of an action."""
        del key
        _log.info("%s", title)

    def ended(self, key: str, text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """Report the end of an action.

        Args:
            text: its title and the worker that ran it, or the report of its failure.
            seconds: how long it ran; 0 when its result was known.
        """
        del key, seconds, peak_bytes
        if failed:
            _log.error("%s", text)

    def finished(self) -> None:
        """Report the end of the build."""
        _log.info("done")


def repeat(
    text: Callable[[], str], say: Callable[[str], None], every_s: float
) -> Callable[[], None]:
    """Print a line from time to time, in a background thread; returns what ends that."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            say(text())

    def end() -> None:
        over.set()
        thread.join()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return end


def write(text: str) -> None:
    """Write to standard error, if there is one and it is open."""
    # Not by print, which takes standard output where there is no standard error.
    with _writing, contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


def draw(text: str) -> None:
    """Show a text in the place of the terminal's last line."""
    write(f"{ERASE}{printable(text)[: shutil.get_terminal_size().columns - 1]}")
