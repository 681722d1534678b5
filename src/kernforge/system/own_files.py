# SPDX-License-Identifier: Apache-2.0
"""Files for a user: one that exists is replaced only if its bytes are what kernforge wrote there.

The hash of what was written last is remembered by the file's path, below ``KERNFORGE_HOME``.
Elsewhere, as in a clone on another machine, a file with other bytes is the user's.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kernforge.errors import StorageError, UsageError
from kernforge.system import digest, files


def is_replaceable(path: Path, home: Path) -> bool:
    """Whether nothing is at a path, or a file with the bytes that were written there last.

    Args:
        home: ``KERNFORGE_HOME``.
    """
    if not os.path.lexists(path):
        return True
    regular = path.is_file() and not path.is_symlink()
    return regular and files.read_json(_note(path, home)) == files.sha256_file(path)


def refuse(path: Path, home: Path, *, hint: str = "remove it, or name another file") -> None:
    """Refuse a path that ``is_replaceable`` denies."""
    if not is_replaceable(path, home):
        raise UsageError(
            f"{path} exists, and kernforge did not write it or it was changed since", hint=hint
        )


def remember(path: Path, home: Path) -> None:
    """Remember the bytes of a file that was just written."""
    with contextlib.suppress(StorageError):  # a home that is read-only: the file is kept next time
        files.write_json(_note(path, home), files.sha256_file(path))


def write(path: Path, data: bytes | str, home: Path) -> None:
    """Write a file that ``refuse`` allows, atomically."""
    refuse(path, home)
    files.write_atomic(path, data)
    remember(path, home)


def _note(path: Path, home: Path) -> Path:
    place = path.parent.resolve() / path.name
    return home / "written" / f"{digest.key('written', path=os.fsencode(place))}.json"
