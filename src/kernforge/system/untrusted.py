# SPDX-License-Identifier: Apache-2.0
"""Read files out of a tree that somebody else can write: an action's directory, a project.

A path is opened one component after the other, from a directory that is ours, and no component may
be a symbolic link, so that the tree's owner cannot lead a reader elsewhere, neither before nor
while it reads. What is read is a regular file of a bounded size that no other name refers to: no
device, no pipe that would be read for ever, no hard link to a file outside.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kernforge.errors import IntegrityError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTPUT_LIMIT = 8 << 30
"""Bytes of the largest file that is taken from a program."""
_CHUNK = 1 << 20
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_HINT = "only regular files are read there; nothing was read through it"


def copy_out(
    root: Path, name: str, target: Path, *, limit: int = OUTPUT_LIMIT, hard_links: bool = False
) -> None:
    """Copy a file with its execute bit out of a tree, to a path that only this user can write.

    Args:
        root: the directory that holds the tree; others cannot replace it.
        name: path in the tree, whose every component others may have replaced.
        target: a new file; its parent directories are made.
        limit: bytes that the file may have.
        hard_links: whether the file may have other names, as in a clone of a repository.

    Raises:
        FileNotFoundError: there is no such file.
        IntegrityError: it is not a regular file, or a link leads to it, or it is too large.
    """
    with opened(root, name, limit=limit, hard_links=hard_links) as descriptor:
        executable = bool(os.fstat(descriptor).st_mode & 0o100)
        chunks = _chunks(descriptor, limit, f"{root}/{name}")
        files.write_chunks(target, chunks, executable=executable)


def read_bytes(root: Path, name: str, *, limit: int, hard_links: bool = False) -> bytes:
    """The content of a file of a tree; arguments and errors are those of ``copy_out``."""
    with opened(root, name, limit=limit, hard_links=hard_links) as descriptor:
        return b"".join(_chunks(descriptor, limit, f"{root}/{name}"))


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


@contextlib.contextmanager
def opened(root: Path, name: str, *, limit: int, hard_links: bool = False) -> Iterator[int]:
    """A descriptor of a file of a tree; arguments and errors are those of ``copy_out``."""
    parts = PurePosixPath(name).parts
    if not parts or parts[0] == "/" or ".." in parts:
        raise IntegrityError(f"{name!r} leads out of {root}", hint=_HINT)
    descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            # A pipe is not waited for: it is opened at once, and refused.
            flags = os.O_RDONLY | os.O_NONBLOCK if last else os.O_PATH | os.O_DIRECTORY
            above = descriptor
            where = "/".join((str(root), *parts[: number + 1]))
            try:
                status = os.stat(part, dir_fd=above, follow_symlinks=False)
                _refuse_odd(status, where, last=last)
                descriptor = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
                    raise IntegrityError(f"{where} was replaced", hint=_HINT) from error
                raise
            os.close(above)
        status = os.fstat(descriptor)
        _refuse_odd(status, f"{root}/{name}", last=True)
        if status.st_nlink > 1 and not hard_links:
            raise IntegrityError(f"{root}/{name} is a hard link: it has other names", hint=_HINT)
        if status.st_size > limit:
            raise _too_large(f"{root}/{name}", limit)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_odd(status: os.stat_result, where: str, *, last: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == (stat.S_IFREG if last else stat.S_IFDIR):
        return
    found = _KINDS.get(kind, "a file" if kind == stat.S_IFREG else "of an unknown kind")
    wanted = "a regular file" if last else "a directory"
    raise IntegrityError(f"{where} is {found}, not {wanted}", hint=_HINT)


def _chunks(descriptor: int, limit: int, where: str) -> Iterator[bytes]:
    total = 0
    while chunk := os.read(descriptor, _CHUNK):
        total += len(chunk)
        if total > limit:  # it grew since
            raise _too_large(where, limit)
        yield chunk


def _too_large(where: str, limit: int) -> IntegrityError:
    return IntegrityError(f"{where} is larger than {limit / 1e6:,.0f} MB", hint=_HINT)
