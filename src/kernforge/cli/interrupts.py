# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM end a command at any moment."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_AGAIN_S = 0.3
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block when a signal asks the process to end.

    A library may catch the exception: torch does at some moments of its import, and the command
    would continue. So the exception is raised again until the block ends, except while code cleans
    up after it. An interrupt that is ignored, as with ``nohup``, stays ignored.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGALRM, _raise_again)
    if before[signal.SIGINT] is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _raise(_signal: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    raise KeyboardInterrupt


def _raise_again(_signal: int, _frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return  # it was raised, and code cleans up after it
        error = error.__context__
    raise KeyboardInterrupt
