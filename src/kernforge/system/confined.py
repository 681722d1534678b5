# SPDX-License-Identifier: Apache-2.0
"""Read untrusted text in a process of its own, with limits on its CPU time and its memory.

Python's parser holds the interpreter until it ends, in quadratic time for some texts: 600 kB would
stop every thread of a server for half a minute, and no Ctrl-C would end a command.
"""

from __future__ import annotations

import functools
import importlib
import json
import resource
import sys
from collections.abc import Callable
from typing import Any

from kernforge.errors import CheckError
from kernforge.system.process import Command, run

_CPU_S = 5
_WALL_S = 60.0  # on a busy machine
_BYTES = 2 << 30


def call(read: Callable[[Any], Any], text: object, what: str) -> Any:
    """The JSON value of a public function of kernforge for untrusted text.

    Equal texts are read once: the variants of a kernel mostly have the same package.

    Args:
        read: takes and returns JSON values.
        text: a JSON value.
        what: what errors name.

    Raises:
        CheckError: the function raised one, or took too long or too much memory.
    """
    answer = _answer(read.__module__, read.__name__, json.dumps(text))
    if not answer:
        raise CheckError(
            f"{what} cannot be read within {_CPU_S} seconds and {_BYTES / 1e9:.0f} GB of memory",
            hint="such text is no ordinary program: do not use it, and inform its publisher",
        )
    value = json.loads(answer)
    if "refused" in value:
        raise CheckError(value["refused"], hint=value["hint"])
    return value["value"]


@functools.lru_cache(maxsize=8)
def _answer(module: str, name: str, text: str) -> str:
    """What the process prints; nothing if a limit ended it."""
    # -P, or a file of the current directory could take the place of a module.
    argv = (sys.executable, "-P", "-W", "ignore", "-m", __spec__.name, module, name)
    done = run(Command(argv=argv, stdin=text, timeout=_WALL_S))
    return done.stdout if done.returncode == 0 else ""


def _main(module: str, name: str) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    read = getattr(importlib.import_module(module), name)
    try:
        answer = {"value": read(json.load(sys.stdin))}
    except CheckError as error:
        answer = {"refused": error.message, "hint": error.hint}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main(*sys.argv[1:])
