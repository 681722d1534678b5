# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector in kernforge's own programs and in benchmarks.

Importing torch makes a million objects that all stay. With Python's defaults the collector
traverses them several times while they are made, and again when the process ends: together, a third
of the time of a program that imports torch and does little else. A collection takes milliseconds,
so that it must not run while a time is measured.
"""

from __future__ import annotations

import atexit
import gc

_RARE = 50_000  # New objects between two collections.
_USUAL = gc.get_threshold()


def collect_rarely() -> None:
    """Collect rarely in this process, and not when it ends."""
    gc.set_threshold(_RARE, *_USUAL[1:])
    atexit.register(gc.freeze)


def collect_as_usual() -> None:
    """Keep all present objects, and collect new ones, which may hold much memory, as usual."""
    gc.freeze()
    gc.set_threshold(*_USUAL)


class Collector:
    """The collector of a process whose calls are timed: it collects only between two turns.

    Its functions are bound here, before a candidate is loaded. It collects when a turn is over and
    the inputs of the next one do not exist yet, so that a candidate cannot use it for its own work.
    """

    def __init__(self) -> None:
        self.stop, self.go_on = gc.disable, gc.enable
        self._collect, self._freeze, self._unfreeze = gc.collect, gc.freeze, gc.unfreeze
        self._is_frozen = False

    def begin(self) -> None:
        """Begin another workload, whose permanent objects may differ."""
        self._unfreeze()
        self._is_frozen = False

    def clear(self) -> None:
        """Collect; objects that remain after a workload's first turn are not traversed again."""
        self._collect()
        if not self._is_frozen:
            self._freeze()
            self._is_frozen = True
