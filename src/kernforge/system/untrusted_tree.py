# SPDX-License-Identifier: Apache-2.0
"""Read and write below a directory whose content is untrusted.

A project that was cloned, a build that was downloaded, what a compiler's action left: no component
of a path in it may be a symbolic link, so that nothing outside is read or written. What is read is
a regular file of a bounded size: no device, and no pipe that would be read for ever.

No process changes the directory meanwhile: an action and all that it started have ended. The
directory itself is trusted: the caller resolves it, and ``name`` is always a relative path in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from kernforge.errors import IntegrityError
from kernforge.system import files

# Bytes of the largest file that is taken from a program.
_OUTPUT_LIMIT = 8 << 30
_HINT = (
    "kernforge follows no links there and reads regular files only: put the file or the directory "
    "itself in its place"
)


def copy_out(root: Path, name: str, target: Path) -> None:
    """Copy a file with its execute bit out of a tree, to a path that only this user can write.

    Args:
        root: the directory that holds the tree.
        name: path in the tree.
        target: a new file; its parent directories are made.

    Raises:
        FileNotFoundError: there is no such file.
        IntegrityError: it is not a regular file, or a link leads to it, it has other names, or it
            is too large.
    """
    files.copy_file(_checked(root, name, limit=_OUTPUT_LIMIT, hard_links=False), target)


def read_bytes(root: Path, name: str, *, limit: int, hard_links: bool = False) -> bytes:
    """The content of a file of a tree; raises what ``copy_out`` does.

    Args:
        limit: bytes that the file may have.
        hard_links: whether the file may have other names, as in a clone of a repository.
    """
    return _checked(root, name, limit=limit, hard_links=hard_links).read_bytes()


def write(root: Path, name: str, data: bytes | str) -> None:
    """Write a complete file under its name in a tree, or nothing; directories on the way are made.

    Raises:
        IntegrityError: a link is on the way, or the name is that of something but a regular file.
        StorageError: the disk is full or of another user.
    """
    payload = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    refuse_links(root, [name])
    files.write_atomic(root / name, payload)


def refuse_links(root: Path, names: Iterable[str]) -> None:
    """Raise what ``write`` does for a link or for the name of something else, before any write."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            _regular(root, name)


def inside(root: Path, path: Path) -> Path | None:
    """The regular file that a path of a tree stands for, whose links lead inside the tree only.

    Args:
        root: the tree's real directory.
        path: a path below it, as a walk finds it that follows no links.

    Returns:
        None for a link to a directory, or to nothing, inside the tree.

    Raises:
        IntegrityError: it is a device, a pipe or a socket, or a link leads out of the tree.
    """
    real = path
    if path.is_symlink():
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(root):
            raise IntegrityError(
                f"{path} is a link to {path.readlink()}, which is outside of {root}",
                hint="put a copy of that file in its place",
            )
        if real.is_dir() or not os.path.lexists(real):
            return None
    return _require(real, stat.S_IFREG, shown=str(path))


def _checked(root: Path, name: str, *, limit: int, hard_links: bool) -> Path:
    """A file of a tree; arguments and errors are those of ``read_bytes``."""
    path = _regular(root, name)
    status = path.lstat()
    if status.st_nlink > 1 and not hard_links:
        raise IntegrityError(f"{path} is a hard link: it has other names", hint=_HINT)
    if status.st_size > limit:
        raise IntegrityError(f"{path} is larger than {limit / 1e6:,.0f} MB", hint=_HINT)
    return path


def _regular(root: Path, name: str) -> Path:
    """A regular file of a tree, to which no link leads.

    Raises:
        FileNotFoundError: a component is missing.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts or "\0" in name:
        raise IntegrityError(f"{name!r} leads out of {root}", hint=_HINT)
    path = root
    for part in parts[:-1]:
        path = _require(path / part, stat.S_IFDIR)
    return _require(path / parts[-1], stat.S_IFREG)


def _require(path: Path, wanted: int, shown: str = "") -> Path:
    kind = stat.S_IFMT(path.lstat().st_mode)
    if kind != wanted:
        name = "a regular file" if wanted == stat.S_IFREG else "a directory"
        link = "is a symbolic link and " if kind == stat.S_IFLNK else "is "
        raise IntegrityError(f"{shown or path} {link}not {name}", hint=_HINT)
    return path
