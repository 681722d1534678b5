# SPDX-License-Identifier: Apache-2.0
"""Show what a build within pip does: pip keeps what it writes until the build ends or fails.

The build appends each line to a file as well, which the process that started pip reads.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.system import files
from kernforge.system.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.system.environment import Environment

_EVERY_S = 0.5


class AppendingConsole(Console):
    """Console that also appends its notes, and the lines of a long build, to an existing file."""

    def __init__(self, path: Path) -> None:
        super().__init__(failures=False)
        self._path = path

    def _write(self, text: str) -> None:
        super()._write(text)
        files.append(self._path, f"{text}\n")


def console_of(environment: Environment) -> Console:
    """The console of a build, which may be followed by the process that started pip."""
    shown = environment.kernforge_progress
    return AppendingConsole(Path(shown)) if shown else Console(failures=False)


@contextlib.contextmanager
def followed(path: Path, console: Console) -> Iterator[None]:
    """While this lasts, print as notes the lines that another process appends to a new file."""
    files.write_new(path, "")
    ended = threading.Event()

    def follow() -> None:
        with path.open(encoding="utf-8", errors="replace") as stream:
            while True:
                last = ended.wait(_EVERY_S)
                for line in stream:
                    console.note(line.rstrip("\n"))
                if last:
                    return

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
