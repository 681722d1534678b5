# SPDX-License-Identifier: Apache-2.0
"""What a command prints.

Results go to standard output, as text or as one JSON document; progress, notes and errors go to
standard error, so that a program can read the results while a person watches the progress.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from kernforge.errors import KernforgeError, printable
from kernforge.system.environment import is_terminal
from kernforge.system.progress import ERASE, Progress, draw, repeat, write
from kernforge.system.tables import size

EVERY_S = 10.0
"""Seconds between two lines of progress where there is no terminal."""
_ON_TERMINAL_S = 2.0
_DRAWN_S = 0.25
_WORTH_A_LINE_S = 0.3
_MB = 1_000_000
_NAMES = 3  # of running actions in a line


class Console(Progress):
    """The output of a command.

    Args:
        failures: whether to print a compiler's errors when they occur; False for a caller whose
            own error contains them.
        every_s: seconds between two lines of progress where there is no terminal.
    """

    def __init__(
        self,
        *,
        as_json: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        failures: bool = True,
        every_s: float = EVERY_S,
    ) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self._verbose = verbose
        self._failures = failures
        self._watched = is_terminal(sys.stderr) and not quiet
        self._every_s = every_s
        self._total = self._ended = 0
        self._running: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None  # of the line with what runs
        self._result: Any = None
        self._indent: int | None = 2

    # -- results ---------------------------------------------------------------------------

    def result(self, document: Any, text: str) -> None:
        """Print a command's result, once: the document for programs, the text for people.

        The document is printed at the end of the command, with the error if there is one, so that
        a program always reads one document.
        """
        if self.as_json:
            self._result = document
        elif text:
            self._print_result(printable(text))

    def line(self, document: Any, text: str) -> None:
        """Print one of several results: a line of JSON, or text."""
        if self.as_json:
            self._indent = None
            self._print_result(json.dumps(document, default=str))
        elif text:
            self._print_result(printable(text))

    def close(self) -> None:
        """Print the document of the result, if there is one."""
        if self._result is not None:
            self._print_result(json.dumps(self._result, indent=self._indent, default=str))
            self._result = None

    def _print_result(self, text: str) -> None:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            raise
        except OSError as error:
            from kernforge.system import files  # noqa: PLC0415 - few commands end so

            # What is buffered is discarded: Python would try again when it ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise files.storage_error(error, "writing standard output") from error

    def error(self, error: KernforgeError) -> None:
        """Print an error with its hint; a JSON document gets it too, unless it is a list."""
        if self.as_json:
            document = {"error": type(error).__name__, "message": error.message, "hint": error.hint}
            if self._result is None or isinstance(self._result, dict):
                self._result = {**(self._result or {}), **document}
            self.close()
        if self._verbose:
            self._print("".join(traceback.format_exception(error)).rstrip())
        self._print(f"error: {error.message}")
        if error.hint:
            self._print(f"hint: {error.hint}")

    def note(self, text: str) -> None:
        """Print a note, which is not part of the result."""
        if not self.quiet:
            self._print(text)

    # -- progress of downloads -------------------------------------------------------------

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Begin a download; returns a function to call with each number of received bytes."""
        size_text = f" ({size(total)})" if total else ""
        self.note(f"fetching {what}{size_text}")
        got = 0
        last = time.monotonic()

        def advance(count: int) -> None:
            nonlocal got, last
            got += count
            now = time.monotonic()
            if now - last < (_ON_TERMINAL_S if self._watched else self._every_s) or self.quiet:
                return
            last = now
            share = f" of {size(total)}" if total else " MB"
            self._print(f"  {what}: {got / _MB:.1f}{share}")  # several are fetched side by side

        return advance

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Say what is done, and again from time to time until it is done."""
        self.note(what)
        start = time.monotonic()
        end = repeat(
            lambda: f"  {what}: {time.monotonic() - start:.0f} s", self.note, self._every_s
        )
        try:
            yield
        finally:
            end()

    # -- progress of builds ----------------------------------------------------------------

    def planned(self, actions: int) -> None:
        """A build begins."""
        self._total, self._ended = actions, 0

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        with self._lock:
            self._running[key] = (time.monotonic(), title)
        if self._watched and not self._end:  # a build without actions to run shows nothing
            self._end = repeat(self._line, draw, _DRAWN_S)
        elif not self.quiet and not self._end:
            self._end = repeat(self._line, self._print, self._every_s)

    def ended(self, key: str, text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """An action ended: a long one gets a line, a failed one its whole text."""
        with self._lock:
            self._running.pop(key, None)
            self._ended += 1
        if failed and self._failures:
            self._print(text)
        elif not failed and (self._verbose or seconds >= _WORTH_A_LINE_S):
            self.note(f"  {seconds:5.1f} s  {size(peak_bytes):>8}  {text}")

    def finished(self) -> None:
        """A build ends."""
        self._running = {}
        if self._end:
            self._end()
            self._end = None
            write(ERASE if self._watched else "")

    def _line(self) -> str:
        """How many actions ended, and which run for longest."""
        now = time.monotonic()
        with self._lock:
            running = sorted(self._running.values())
        names = [f"{title} ({now - start:.0f} s)" for start, title in running[:_NAMES]]
        more = [f"{len(running) - _NAMES} more"] if len(running) > _NAMES else []
        return (
            f"  {self._ended} of {self._total} actions ended, {len(running)} running: "
            f"{', '.join([*names, *more])}"
        )

    def _print(self, text: str) -> None:
        erase = ERASE if self._watched and self._end else ""
        write(f"{erase}{printable(text)}\n")
