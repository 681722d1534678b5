# SPDX-License-Identifier: Apache-2.0
"""Python's garbage collector in kernforge's own programs.

Importing torch makes a million objects that all stay. With Python's defaults the collector
traverses them several times while they are made, and again when the process ends: together, a third
of the time of a program that imports torch and does little else.
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
