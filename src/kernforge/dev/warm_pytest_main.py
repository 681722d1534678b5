# SPDX-License-Identifier: Apache-2.0
"""A pytest that has torch imported before it knows what to test; a program of ``dev_spare``'s.

It stands by itself: nothing of kernforge is imported before pytest is, as with ``python -m pytest``.
Its two arguments are the ends of pipes: on one it reads its order, on the other it says that it is
ready. It does one order and ends as ``python -m pytest`` would.
"""

import contextlib
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

# What tests of operators import sooner or later; the last is half of it all.
_IMPORTED = ("torch", "pytest", "torch._dynamo")


def main(reads: int, writes: int) -> None:
    """Get ready, wait for an order, do it."""
    for end in (reads, writes):
        os.set_inheritable(end, False)
    project = Path.cwd()
    if not sys.flags.safe_path:  # else neither this program's directory is there nor `-m`'s
        sys.path[0] = str(project)
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if any(_may_change(Path(path), project) for path in _imported_from()):
        return
    os.write(writes, b"ready\n")
    with os.fdopen(reads) as stream:
        said = stream.readline()
    if said:
        _do(json.loads(said))


def _imported_from() -> list[str]:
    files = (getattr(module, "__file__", None) for module in (*sys.modules.values(),))
    return [path for path in files if path and path != __file__]


def _may_change(path: Path, project: Path) -> bool:
    """Whether a file is one that its user edits."""
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return path.is_relative_to(project) and not installed


def _do(order: dict[str, Any]) -> None:
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for number, path in ((1, order["stdout"]), (2, order["stderr"])):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = ["pytest", *order["arguments"]]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
