# SPDX-License-Identifier: Apache-2.0
"""Read and write below a directory whose content somebody else may have shaped.

A project that was cloned, a build that was downloaded, what a compiler's action left: no component
of a path in it may be a symbolic link, so that nothing outside is read or written. What is read is
a regular file of a bounded size: no device, and no pipe that would be read for ever.

Nobody changes the directory meanwhile: an action and all that it started have ended. The directory
itself is trusted: the caller resolves it, and ``name`` is always a relative path in it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path, PurePosixPath

from kernforge.errors import IntegrityError
from kernforge.system import files

# Bytes of the largest file that is taken from a program.
_OUTPUT_LIMIT = 8 << 30
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
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
    with contextlib.suppress(FileNotFoundError):
        _refuse_links(root, name)
    files.write_atomic(root / name, payload)


def inside(root: Path, path: Path) -> Path | None:
    """The regular file that a path of a tree stands for, whose links lead inside the tree only.

    Args:
        root: the tree's real directory.
        path: a path below it, as a walk finds it that follows no links.

    Returns:
        None for a link to nothing inside the tree.

    Raises:
        IntegrityError: it is a device, a pipe or a socket, or a link leads out of the tree.
    """
    status = path.lstat()
    if stat.S_ISREG(status.st_mode):
        return path
    if not stat.S_ISLNK(status.st_mode):
        _refuse_odd(status, str(path), last=True)
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(root):
        raise IntegrityError(
            f"{path} is a link to {path.readlink()}, which is outside of {root}",
            hint="put a copy of that file in its place",
        )
    try:
        status = real.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        _refuse_odd(status, f"{path} -> {real}", last=True)
        return real
    return None


def _checked(root: Path, name: str, *, limit: int, hard_links: bool) -> Path:
    """A file of a tree; arguments and errors are those of ``read_bytes``."""
    _refuse_links(root, name)
    path = root / name
    status = path.lstat()
    if status.st_nlink > 1 and not hard_links:
        raise IntegrityError(f"{path} is a hard link: it has other names", hint=_HINT)
    if status.st_size > limit:
        raise IntegrityError(f"{path} is larger than {limit / 1e6:,.0f} MB", hint=_HINT)
    return path


def _refuse_links(root: Path, name: str) -> None:
    """Refuse a path that leaves its tree, or does not name a regular file in directories.

    Raises:
        FileNotFoundError: a component is missing.
    """
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in name:
        raise IntegrityError(f"{name!r} leads out of {root}", hint=_HINT)
    path = root
    for number, part in enumerate(parts, 1):
        path /= part
        _refuse_odd(path.lstat(), str(path), last=number == len(parts))


def _refuse_odd(status: os.stat_result, where: str, *, last: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == (stat.S_IFREG if last else stat.S_IFDIR):
        return
    found = _KINDS.get(kind, "a file" if kind == stat.S_IFREG else "of an unknown kind")
    wanted = "a regular file" if last else "a directory"
    raise IntegrityError(f"{where} is {found}, not {wanted}", hint=_HINT)
