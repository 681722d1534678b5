# SPDX-License-Identifier: Apache-2.0
"""Read and write below a directory whose content somebody else may have shaped.

A project that was cloned, a build that was downloaded, what a compiler's action left: a path in it
is opened one component after the other, and no component may be a symbolic link, so that nothing
outside is read or written. What is read is a regular file of a bounded size: no device, and no pipe
that would be read for ever.

The directory itself is trusted: the caller resolves it, and ``name`` is always a relative path in
it.
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
    from collections.abc import Iterator, Sequence

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
_HINT = (
    "kernforge follows no links there and reads regular files only: put the file or the directory "
    "itself in its place"
)


def copy_out(
    root: Path, name: str, target: Path, *, limit: int = OUTPUT_LIMIT, hard_links: bool = False
) -> None:
    """Copy a file with its execute bit out of a tree, to a path that only this user can write.

    Args:
        root: the directory that holds the tree.
        name: path in the tree.
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


def write(root: Path, name: str, data: bytes | str, *, executable: bool = False) -> None:
    """Write a complete file under its name in a tree, or nothing; directories on the way are made.

    Raises:
        IntegrityError: a link is on the way, or the name is that of something but a regular file.
        StorageError: the disk is full or of another user.
    """
    payload = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    with (
        files.disk_errors(f"writing {root}/{name}"),
        _parent(root, name, make=True) as (above, last),
    ):
        with contextlib.suppress(FileNotFoundError):
            there = os.stat(last, dir_fd=above, follow_symlinks=False)
            _refuse_odd(there, f"{root}/{name}", last=True)
        temporary = files.temporary_name()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o755 if executable else 0o644, dir_fd=above)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(payload)
                stream.flush()
                os.fsync(descriptor)
            os.replace(temporary, last, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=above)
            raise


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
    where = f"{root}/{name}"
    with _parent(root, name) as (above, last):
        # A pipe is not waited for: it is opened at once, and refused.
        descriptor = _open(last, os.O_RDONLY | os.O_NONBLOCK, above, where)
    try:
        status = os.fstat(descriptor)
        _refuse_odd(status, where, last=True)
        if status.st_nlink > 1 and not hard_links:
            raise IntegrityError(f"{where} is a hard link: it has other names", hint=_HINT)
        if status.st_size > limit:
            raise _too_large(where, limit)
        yield descriptor
    finally:
        os.close(descriptor)


def _parts(root: Path, name: str) -> tuple[str, ...]:
    parts = PurePosixPath(name).parts
    if parts[:1] == ("/",) or ".." in parts or "\0" in name:
        raise IntegrityError(f"{name!r} leads out of {root}", hint=_HINT)
    return parts


@contextlib.contextmanager
def _parent(root: Path, name: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
    """A descriptor of the directory that holds a path, and the path's last component."""
    *above, last = _parts(root, name) or (".",)
    if last == ".":
        raise IntegrityError(f"{name!r} names nothing in {root}", hint=_HINT)
    descriptor = _directory(root, above, make=make)
    try:
        yield descriptor, last
    finally:
        os.close(descriptor)


def _directory(root: Path, parts: Sequence[str], *, make: bool = False) -> int:
    """A descriptor of a directory of a tree, reached without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    descriptor = os.open(root, flags | os.O_CLOEXEC)
    for number, part in enumerate(parts, 1):
        above = descriptor
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=above)
            descriptor = _open(part, flags, above, "/".join((str(root), *parts[:number])))
        finally:
            os.close(above)
    return descriptor


def _open(part: str, flags: int, above: int, where: str) -> int:
    """Open a component of a path, which may be a link, a pipe or a device made to mislead."""
    status = os.stat(part, dir_fd=above, follow_symlinks=False)
    _refuse_odd(status, where, last=not flags & os.O_DIRECTORY)
    try:
        return os.open(part, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.ENXIO}:
            raise IntegrityError(f"{where} was replaced", hint=_HINT) from error
        raise


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
