# SPDX-License-Identifier: Apache-2.0
"""The hooks for setuptools that write a project's lock into its distribution's metadata.

setuptools calls them, by the entry points ``egg_info.writers`` and ``setuptools.file_finders``, for
every project that is built where kernforge is installed; only those with
``[tool.kernels.dependencies]`` are touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernforge.application import project_lock
from kernforge.application.project_lock import Application


def write_lock(command: Any, basename: str, filename: str) -> None:
    """Write one file of the lock."""
    application = _application(Path.cwd())
    if application is not None:
        project_lock.check(application)
        path = application.root / basename
        text = path.read_text() if path.is_file() else None
        command.write_or_delete_file(basename, filename, text)


def lock_files(directory: str) -> list[str]:
    """The files of the lock, which belong in a source distribution.

    Args:
        directory: the project; empty for the current directory.
    """
    application = _application(Path(directory or "."))
    if application is None:
        return []
    paths = [application.root / name for name in project_lock.NAMES]
    return [str(path) for path in paths if path.is_file()]


def _application(root: Path) -> Application | None:
    """The project, if it requires kernels."""
    if not (root / project_lock.PYPROJECT).is_file():
        return None
    application = project_lock.read(root)
    return application if application.required else None
