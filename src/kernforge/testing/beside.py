# SPDX-License-Identifier: Apache-2.0
"""The Python files beside a project's tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from kernforge.errors import UsageError


def load_beside(test: str, name: str) -> ModuleType:
    """Import a file at the top of a project, such as ``reference.py``.

    The module's name has the project's: a process may test several projects, each with a
    ``reference.py``.

    Args:
        test: ``__file__`` of a file in ``tests/``.
        name: of the file, without ``.py``.

    Raises:
        UsageError: there is no such file.
    """
    project = Path(test).resolve().parents[1]
    path = project / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{project.name}_{name}".replace("-", "_"), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(
            f"there is no {path}", hint="load_beside(__file__, NAME) is for a file of tests/"
        )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
