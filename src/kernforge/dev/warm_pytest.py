# SPDX-License-Identifier: Apache-2.0
"""A spare pytest for the next round of ``kernforge dev``, with torch imported already.

To start Python and import torch takes longer than most kernels' tests. A spare process does that while
nobody waits: after a round, or beside the compilers. It runs one round's tests and ends, so that each
round's process is as new as any other; where there is none, or it was ended with a round, pytest is
started as ever.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kernforge.system import files
from kernforge.system.process import Command, Completed, PipedProcess, run
from kernforge.testing.project_tests import environment

if TYPE_CHECKING:
    from concurrent.futures import Future

_PROGRAM = Path(__file__).with_name("warm_pytest_main.py")
_PYTEST = (sys.executable, "-m", "pytest")
_READY_S = 60.0


class Spare:
    """Keeps one process ready.

    Args:
        project: the directory in which its tests run.
        scratch: where what it prints is put.
    """

    def __init__(self, project: Path, scratch: Path) -> None:
        self._project, self._scratch = project, scratch
        # A process ends with the thread that started it, if tests ask for that: this one stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="kernforge-spare")
        self._next: Future[PipedProcess] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        self._starter.shutdown()

    def prepare(self) -> None:
        """Start a process if none stands by."""
        if self._next is not None and self._next.result().ended() is not None:
            self._drop()
        if self._next is None:
            command = Command(
                argv=(sys.executable, str(_PROGRAM)), cwd=self._project, env=environment()
            )
            self._next = self._starter.submit(PipedProcess, command)

    def run(self, command: Command) -> Completed:
        """Run a pytest, in the process that stands by if there is one.

        Raises:
            FileNotFoundError: there is no such program.
        """
        spare = self._next.result() if self._next and command.argv[:3] == _PYTEST else None
        if spare is None or spare.receive(_READY_S) is None:
            self._drop()
            return run(command)
        start = time.monotonic()
        said = {name: self._scratch / f"tests.{name}" for name in ("stdout", "stderr")}
        order = {
            "arguments": command.argv[3:],
            "cwd": str(command.cwd or self._project),
            "env": dict(os.environ if command.env is None else command.env),
            **{name: str(path) for name, path in said.items()},
        }
        spare.send(json.dumps(order))
        code = spare.wait()
        self._drop()
        return Completed(
            returncode=code,
            stdout=_taken(said["stdout"]),
            stderr=_taken(said["stderr"]),
            wall_s=time.monotonic() - start,
        )

    def _drop(self) -> None:
        if self._next is not None:
            self._next.result().kill()
            self._next = None


def _taken(path: Path) -> str:
    """The text of a file that is removed; nothing if a process was ended before it wrote one."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    files.remove_tree(path)
    return text
