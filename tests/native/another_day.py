# SPDX-License-Identifier: Apache-2.0
"""``python another_day.py CLOCK ARGUMENT...``: kernforge, and all that it starts, on another day.

An action's environment is fixed and its view holds nothing of this machine, so the library that
moves the clock (see clock.c) is put into each action's own ``tmp``, and preloaded there.
"""

import shutil
import sys
from dataclasses import replace

from kernforge.builder import sandbox
from kernforge.cli import main as cli_main

SHIFT_S = 400 * 24 * 3600
"""Another year, month, day of the week and side of daylight saving."""
_INSIDE = "tmp/clock.so"


def environment(clock: str) -> dict[str, str]:
    """What moves the clock of a program."""
    return {"LD_PRELOAD": clock, "CLOCK_SHIFT_S": str(SHIFT_S)}


def main(clock: str) -> None:
    """Run kernforge's command line; the arguments are those that are left."""
    real = sandbox.command

    def moved(kind, room, argv, *more):
        shutil.copy(clock, room.path / _INSIDE)
        found = real(kind, room, argv, *more)
        env = {**environment(f"{room.inside}/{_INSIDE}"), "CLOCK_TELL": "1"}
        return replace(found, env={**found.env, **env})

    sandbox.command = moved
    cli_main.main()


if __name__ == "__main__":
    main(sys.argv.pop(1))
