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
_HINT = "only a regular file is taken from there; nothing was read through it"


def copy_out(root: Path, name: str, target: Path, *, limit: int = OUTPUT_LIMIT) -> None:
    """Copy a file with its execute bit out of a tree, to a path that only this user can write.

    Args:
        root: the directory that holds the tree; others cannot replace it.
        name: path in the tree, whose every component others may have replaced.
        target: a new file; its parent directories are made.
        limit: bytes that the file may have.

    Raises:
        FileNotFoundError: there is no such file.
        IntegrityError: it is not a regular file, or a link leads to it, or it is too large.
    """
    with opened(root, name, limit=limit) as descriptor:
        executable = bool(os.fstat(descriptor).st_mode & 0o100)
        chunks = _chunks(descriptor, limit, f"{root}/{name}")
        files.write_chunks(target, chunks, executable=executable)


def read_bytes(root: Path, name: str, *, limit: int) -> bytes:
    """The content of a file of a tree; arguments and errors are those of ``copy_out``."""
    with opened(root, name, limit=limit) as descriptor:
        return b"".join(_chunks(descriptor, limit, f"{root}/{name}"))


@contextlib.contextmanager
def opened(root: Path, name: str, *, limit: int) -> Iterator[int]:
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
                _refuse_odd(os.stat(part, dir_fd=above, follow_symlinks=False), where, last=last)
                descriptor = os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
            except OSError as error:
                if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
                    raise IntegrityError(f"{where} was replaced", hint=_HINT) from error
                raise
            os.close(above)
        status = os.fstat(descriptor)
        _refuse_odd(status, f"{root}/{name}", last=True)
        if status.st_size > limit:
            raise _too_large(f"{root}/{name}", limit)
        yield descriptor
    finally:
        os.close(descriptor)


def _refuse_odd(status: os.stat_result, where: str, *, last: bool) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == (stat.S_IFREG if last else stat.S_IFDIR):
        if last and status.st_nlink > 1:
            raise IntegrityError(f"{where} is a hard link: it has other names", hint=_HINT)
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
