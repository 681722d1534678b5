# SPDX-License-Identifier: Apache-2.0
"""How a round of ``kernforge dev`` is ended, and what it tells meanwhile.

A round runs in a thread of its own. To end it, every program that it started is killed, and what it
would do next is refused; what the store holds is whole at any moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kernforge.system.process import kill_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SLEEP_S = 0.02


class StoppedError(Exception):
    """A round was ended from outside."""


class Stop:
    """Ends a round."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def check(self) -> None:
        """Raise if the round is to end.

        Raises:
            StoppedError: it is.
        """
        if self._said.is_set():
            raise StoppedError

    def end(self, thread: threading.Thread) -> None:
        """End the round that runs in a thread, and wait for it."""
        self._said.set()
        # More than once: it may have been just about to start a program.
        while thread.is_alive():
            kill_all()
            thread.join(_SLEEP_S)


class RoundEvents:
    """Tells what a round is doing, and ends its build when the round is to end.

    Args:
        tell: called with ``compiling``, ``testing``, ``measuring`` or ``fetching`` and a text.
        stop: says when the round is to end.
    """

    def __init__(self, tell: Callable[[str, str], None], stop: Stop) -> None:
        self._tell, self._stop = tell, stop
        self._running: dict[str, str] = {}

    def state(self, state: str, text: str = "") -> None:
        """A stage begins."""
        self._tell(state, text)

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """A download begins."""
        size = f" ({total / 1e6:.0f} MB)" if total else ""
        self._tell("fetching", f"{what}{size}")
        return lambda _count: None

    def note(self, text: str) -> None:
        """Something that a user should know."""
        self._tell("compiling", text)

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """A build begins.

        Raises:
            StoppedError: the round is to end.
        """
        del actions, usage
        self._stop.check()

    def started(self, key: str, title: str) -> None:
        """An action begins.

        Raises:
            StoppedError: the round is to end.
        """
        self._stop.check()
        self._running[key] = title
        self._tell("compiling", "; ".join(self._running.values()))

    def ended(self, key: str, _text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """An action ended."""
        del seconds, peak_bytes, failed
        self._running.pop(key, None)
        self._tell("compiling", "; ".join(self._running.values()))

    def finished(self) -> None:
        """A build ended."""
        self._running.clear()
