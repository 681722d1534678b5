# SPDX-License-Identifier: Apache-2.0
"""How a round of ``kernforge dev`` is ended, and what it tells meanwhile.

A round runs in a thread of its own. To end it, every program that it started is killed, and what it
would do next is refused; what the store holds is whole at any moment.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kernforge.build.execute.local_pool import Crew
from kernforge.system.process import kill_all

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kernforge.build.execute.cost import Estimate
    from kernforge.build.execute.outcome import Done
    from kernforge.build.plan.graph import Action

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


class Teller:
    """Tells what a round is doing: a state, and what of it.

    Args:
        tell: is called with ``compiling``, ``testing`` or ``measuring`` and some words.
    """

    def __init__(self, tell: Callable[[str, str], None]) -> None:
        self._tell = tell
        self._running: dict[str, str] = {}

    def state(self, state: str, words: str = "") -> None:
        """Tell that a stage begins."""
        self._tell(state, words)

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Tell of a download."""
        size = f" ({total / 1e6:.0f} MB)" if total else ""
        self._tell("fetching", f"{what}{size}")
        return lambda _count: None

    def note(self, text: str) -> None:
        """Tell of what is worth a word while it lasts."""
        self._tell("compiling", text)

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """Nothing: what runs is told."""

    def started(self, action: Action) -> None:
        """Tell which actions run."""
        self._running[action.key] = action.title
        self._tell("compiling", "; ".join(self._running.values()))

    def ended(self, action: Action, done: Done) -> None:
        """Tell which actions still run."""
        del done
        self._running.pop(action.key, None)
        self._tell("compiling", "; ".join(self._running.values()))

    def finished(self) -> None:
        """Forget what ran."""
        self._running.clear()


class StoppingCrew(Crew):
    """Threads that take no more work when the round is to end.

    Args:
        stop: says when.
        jobs: as for ``Crew``.
    """

    def __init__(self, stop: Stop, *, jobs: int) -> None:
        super().__init__(jobs=jobs)
        self._stop = stop

    def choose(
        self,
        waiting: Sequence[Action],
        expected: Mapping[str, Estimate],
        distance: Mapping[str, float],
        alone: Collection[str],
    ) -> tuple[Action, ...]:
        """Actions that may start now.

        Raises:
            StoppedError: the round is to end.
        """
        self._stop.check()
        return super().choose(waiting, expected, distance, alone)
