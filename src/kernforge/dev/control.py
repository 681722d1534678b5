# SPDX-License-Identifier: Apache-2.0
"""Report the state of a round of ``kernforge dev``, and end it.

A round runs in a thread. To end it, all programs that it started are killed, and its next step
raises an error; the store is consistent at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from kernforge.system.process import kill_all

_SLEEP_S = 0.02


class StoppedError(Exception):
    """A round was ended by another thread."""


class RoundEvents:
    """Reports the state of a round, and ends it: the round and its build ask at each step.

    Args:
        notify: called with ``compiling``, ``testing``, ``measuring`` or ``fetching`` and a text.
    """

    def __init__(self, notify: Callable[[str, str], None]) -> None:
        self._notify = notify
        self._running: dict[str, str] = {}
        # No Event: an interrupt inside its methods could leave its lock held.
        self._stopped = False

    def check(self) -> None:
        """Raise an error if the round must end.

        Raises:
            StoppedError: the round must end.
        """
        if self._stopped:
            raise StoppedError

    def end(self, thread: threading.Thread) -> None:
        """End the round that runs in a thread, and wait for it."""
        self._stopped = True
        # More than once: the round may start another program after the first call.
        while thread.is_alive():
            kill_all()
            thread.join(_SLEEP_S)

    def state(self, state: str, text: str = "") -> None:
        """A stage begins, if the round goes on."""
        self.check()
        self._notify(state, text)

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """A download begins; the returned function ends it if the round must end."""
        size = f" ({total / 1e6:.0f} MB)" if total else ""
        self._notify("fetching", f"{what}{size}")
        return lambda _count: self.check()

    def note(self, text: str) -> None:
        """A note for the user."""
        self._notify("compiling", text)

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """A build begins."""
        del actions, usage
        self.check()

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        self.check()
        self._running[key] = title
        self._notify("compiling", "; ".join(self._running.values()))

    def ended(self, key: str, _text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """An action ended."""
        del seconds, peak_bytes, failed
        self._running.pop(key, None)
        self._notify("compiling", "; ".join(self._running.values()))

    def finished(self) -> None:
        """A build ended."""
        self._running.clear()
