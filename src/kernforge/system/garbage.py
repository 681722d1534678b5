# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector in programs that are ours alone, and while a benchmark's clock runs.

Importing torch makes a million objects that all stay. With Python's defaults the collector looks at
them again and again while they are made, and once more when the process ends: together, a third of
the seconds of a program that imports torch and does little else. A collection of them takes
milliseconds, so none may fall into a time that is measured.
"""

from __future__ import annotations

import atexit
import gc

_SELDOM = 50_000  # New objects between two collections.
_USUAL = gc.get_threshold()


def work_seldom() -> None:
    """Let the collector of this process work seldom, and not when the process ends."""
    gc.set_threshold(_SELDOM, *_USUAL[1:])
    atexit.register(gc.freeze)


def work_as_usual() -> None:
    """All that is here stays; what comes from now on may hold much memory, and is looked at soon."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


class Collector:
    """The collector of a process whose calls are timed: it works between two turns and at no other time.

    Its functions are bound here, before a candidate is loaded. It works when a turn is over and the
    inputs of the next one are not there yet: a candidate gains nothing by what it hangs on it.
    """

    def __init__(self) -> None:
        self.stop, self.go_on = gc.disable, gc.enable
        self._collect, self._freeze, self._unfreeze = gc.collect, gc.freeze, gc.unfreeze
        self._is_frozen = False

    def begin(self) -> None:
        """Another workload: what is kept may be another."""
        self._unfreeze()
        self._is_frozen = False

    def clear(self) -> None:
        """Collect; what is left after a workload's first turn stays, and is not looked at again."""
        self._collect()
        if not self._is_frozen:
            self._freeze()
            self._is_frozen = True
