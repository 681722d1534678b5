# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C and SIGTERM end a command at any moment."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

_AGAIN_S = 0.3
_SIGNALS_AT_ONCE = 64
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
_INTERRUPTED = 130


def end_at_once() -> None:
    """Let an interrupt end the process without delay until ``raised`` begins.

    Nothing is begun while modules are imported, so that nothing needs to be cleaned up; and an
    exception there may be lost in what an import runs, so that the command would continue. An
    interrupt that is ignored stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block when a signal asks the process to end.

    Python's handler of a signal runs in the main thread, after its present step. A signal does not end
    a wait for a lock if another thread receives it, or if it comes just before the wait begins: the
    command would not end before the lock is free. And a library may catch the exception: torch does
    at some moments of its import, and the command would continue. So a thread wakes the main thread,
    and the exception is raised again until the block ends, except while code cleans up after it. An
    interrupt that is ignored, as with ``nohup``, stays ignored.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    if before[signal.SIGINT] is _end:
        before[signal.SIGINT] = signal.default_int_handler  # at the end of a command, too
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    waker = threading.Thread(target=_wake, args=(reads,), name="kernforge-signals", daemon=True)
    waker.start()
    before_fd = signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, _raise)
    signal.signal(signal.SIGALRM, _raise_again)
    if before[signal.SIGINT] is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.set_wakeup_fd(before_fd)
        os.close(writes)
        waker.join()
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _wake(reads: int) -> None:
    """Send SIGALRM to the main thread again and again after the first signal that asks to end.

    Args:
        reads: the end of a pipe that gets the number of each signal; closed at the end of the pipe.
    """
    main = threading.main_thread().ident or 0
    asked = False
    with open(reads, "rb", buffering=0) as stream:
        poll = select.poll()
        poll.register(stream, select.POLLIN)
        while True:
            if not poll.poll(1000 * _AGAIN_S if asked else None):
                signal.pthread_kill(main, signal.SIGALRM)
            elif numbers := stream.read(_SIGNALS_AT_ONCE):
                asked = asked or bool({signal.SIGINT, signal.SIGTERM}.intersection(numbers))
            else:
                return


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


def _raise(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _raise_again(_signal: int, _frame: FrameType | None) -> None:
    error = sys.exc_info()[1]
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return  # it was raised, and code cleans up after it
        error = error.__context__
    raise KeyboardInterrupt
