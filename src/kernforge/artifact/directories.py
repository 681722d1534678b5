# SPDX-License-Identifier: Apache-2.0
"""The built variants that a user means: those in a directory, in its ``build/``, or itself."""

from __future__ import annotations

from pathlib import Path

from kernforge.artifact.metadata import FILE
from kernforge.errors import UsageError


def variants(directory: Path) -> tuple[Path, ...]:
    """The built variants of a project, of a directory of them, or the variant that it is.

    Raises:
        UsageError: there is none.
    """
    if (directory / FILE).is_file():
        return (directory,)
    for base in (directory, directory / "build"):
        if found := sorted(path.parent for path in base.glob(f"*/{FILE}")):
            return tuple(found)
    what = "holds no built variant" if directory.is_dir() else "is no directory"
    raise UsageError(
        f"{directory} {what}",
        hint="build with `kernforge build`, or name a project, a directory of variants or a variant",
    )


def directory_of(where: str) -> Path | None:
    """The directory that a command's argument names; None when it is ``owner/name``.

    What lies there decides, so a directory ``owner/name`` is taken for one.

    Raises:
        UsageError: it is a file, or a path to nothing.
    """
    path = Path(where)
    if path.is_dir():
        return path
    if path.exists() or where.count("/") != 1 or where.startswith((".", "/", "~")):
        what = "is a file, not a directory" if path.exists() else "is no directory"
        raise UsageError(f"{where} {what}", hint="name one, or a kernel as owner/name")
    return None
