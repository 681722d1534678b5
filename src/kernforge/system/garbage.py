# SPDX-License-Identifier: Apache-2.0
"""Python's collector in the programs that are ours alone, and not where we are a guest.

Importing torch makes a million objects that all stay. By Python's defaults the collector looks at
them again and again while they are made, and once more when the process ends: together, a third of
the seconds of a program that imports torch and does little else.
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
