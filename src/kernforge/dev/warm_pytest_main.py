# SPDX-License-Identifier: Apache-2.0
"""A pytest that imports torch before it gets its arguments; the program of ``warm_pytest``.

It imports nothing of kernforge before pytest does, as with ``python -m pytest``. Its two arguments are
ends of pipes: it reads an order from the first and writes to the second when it is ready. It runs one
order and ends as ``python -m pytest`` does.
"""

import contextlib
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# Modules that tests of operators import; the last one takes half of the time.
_IMPORTED = ("torch", "pytest", "torch._dynamo")


def main(reads: int, writes: int) -> None:
    """Import the modules, wait for an order, run it."""
    for end in (reads, writes):
        os.set_inheritable(end, False)
    project = Path.cwd()
    if not sys.flags.safe_path:  # otherwise sys.path has no directory of the program
        sys.path[0] = str(project)
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if any(_may_change(Path(path), project) for path in _imported_from()):
        return
    os.write(writes, b"ready\n")
    with os.fdopen(reads) as stream:
        order = stream.readline()
    if order:
        _do(json.loads(order))


def _imported_from() -> list[str]:
    files = (getattr(module, "__file__", None) for module in (*sys.modules.values(),))
    return [path for path in files if path and path != __file__]


def _may_change(path: Path, project: Path) -> bool:
    """Whether a file belongs to the project that its user edits."""
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_relative_to(project) and not installed


def _do(order: dict[str, Any]) -> None:
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for number, path in ((1, order["stdout"]), (2, order["stderr"])):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv = ["pytest", *order["arguments"]]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
