# SPDX-License-Identifier: Apache-2.0
"""A warm pytest for the next round of ``kernforge dev``: a process that has imported torch already.

Starting Python and importing torch takes longer than most kernels' tests. The process does it after a
round or while compilers run. It runs the tests of one round and ends, so that each round has a new
process. If there is no such process, or it was ended with a round, pytest is started as usual.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kernforge.system import files
from kernforge.system.process import Command, Completed, PipedProcess, run
from kernforge.testing import project_tests

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kernforge.system.environment import Environment

_PROGRAM = Path(__file__).with_name("warm_pytest_main.py")
_PYTEST = (sys.executable, "-m", "pytest")
_READY_S = 60.0


class WarmPytest:
    """Keeps one process ready.

    Args:
        project: directory in which the tests run.
        scratch: directory for the output of the tests.
    """

    def __init__(self, project: Path, scratch: Path, environment: Environment) -> None:
        self._project, self._scratch, self._environment = project, scratch, environment
        # Tests may ask to end with the thread that started them: this thread stays.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="kernforge-warm-pytest")
        self._next: Future[PipedProcess] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        self._starter.shutdown()

    def prepare(self) -> None:
        """Start a process if none is ready."""
        if self._next is not None and self._next.result().ended() is not None:
            self._drop()
        if self._next is None:
            command = Command(
                argv=(sys.executable, str(_PROGRAM)),
                cwd=self._project,
                env=project_tests.variables(self._environment),
            )
            self._next = self._starter.submit(PipedProcess, command)

    def run(self, command: Command) -> Completed:
        """Run a pytest, in the process that is ready if there is one.

        Raises:
            FileNotFoundError: the program does not exist.
        """
        warm = self._next.result() if self._next and command.argv[:3] == _PYTEST else None
        # It may have been killed with the round before, just after ``prepare`` saw it running.
        if warm is None or warm.ended() is not None or warm.receive(_READY_S) is None:
            self._drop()
            return run(command)
        start = time.monotonic()
        output_files = {name: self._scratch / f"tests.{name}" for name in ("stdout", "stderr")}
        order = {
            "arguments": command.argv[3:],
            "cwd": str(command.cwd or self._project),
            "env": command.variables(),
            **{name: str(path) for name, path in output_files.items()},
        }
        warm.send(json.dumps(order))
        code = warm.wait()
        self._drop()
        return Completed(
            returncode=code,
            stdout=_taken(output_files["stdout"]),
            stderr=_taken(output_files["stderr"]),
            wall_s=time.monotonic() - start,
        )

    def _drop(self) -> None:
        if self._next is not None:
            self._next.result().kill()
            self._next = None


def _taken(path: Path) -> str:
    """Read and remove a file; empty if the process ended before it wrote the file."""
    text = path.read_text(errors="replace") if path.is_file() else ""
    files.remove_tree(path)
    return text
