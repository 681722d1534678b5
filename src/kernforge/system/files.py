# SPDX-License-Identifier: Apache-2.0
"""The door to the disk: the only module that writes, renames, locks and removes.

What appears under a final name is whole: files and trees are written beside it and renamed.
A process that dies leaves at most a directory under ``tmp-*`` that the next run may remove.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

_STAGING_PREFIX = "tmp-"
_OTHERWISE = (
    "look at what lies there: a file may be where a directory is meant, or the other way round"
)
_HINTS = {
    errno.ENOTDIR: _OTHERWISE,
    errno.ENOSPC: "free some space, or write to another disk (KERNFORGE_HOME names the store's)",
    errno.EDQUOT: "the quota is used up: free some space, or write elsewhere (KERNFORGE_HOME is the store)",
    errno.EROFS: "the file system is read-only: point KERNFORGE_HOME or --out elsewhere",
    errno.EACCES: "check who owns it, or point KERNFORGE_HOME or --out elsewhere",
    errno.EPERM: "check who owns it, or point KERNFORGE_HOME or --out elsewhere",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write to another file system",
}


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn the errors of a full, read-only or foreign disk into ``StorageError``.

    Args:
        what: what was being done, as in ``"writing /a/b"``.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _HINTS:
            raise
        raise StorageError(f"{what}: {error.strerror}", hint=_HINTS[error.errno]) from error


def told(error: OSError) -> StorageError:
    """What a user is told of an error that nobody on the way expected."""
    place = f"{error.filename}: " if error.filename else ""
    nowhere = "a directory above it is not there, or takes none: check the path and KERNFORGE_HOME"
    hints = {**_HINTS, errno.ENOENT: nowhere}
    hint = hints.get(error.errno or 0, _OTHERWISE)
    return StorageError(f"{place}{error.strerror or error}", hint=hint)


def temporary() -> Path:
    """Where programs of this process put temporary files.

    Raises:
        StorageError: no directory takes any.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StorageError(
            "no directory takes temporary files, so no program can be started: TMPDIR, /tmp, "
            "/var/tmp and the current directory are full, read-only or not ours",
            hint="free some space, or set TMPDIR to a directory that takes files",
        ) from error


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Yield an empty directory inside ``parent``, removed at the end if it is still there."""
    with disk_errors(f"writing under {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=_STAGING_PREFIX, dir=parent))
        path.chmod(0o755)
    try:
        with disk_errors(f"writing under {parent}"):
            yield path
    finally:
        remove_tree(path)


def publish_tree(staged: Path, final: Path) -> bool:
    """Rename a staged directory to its final name; if another process was first, keep theirs.

    Returns:
        Whether it was this call that published.
    """
    with disk_errors(f"writing {final}"):
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            staged.rename(final)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY}:
                raise
            return False
    return True


def replace_tree(staged: Path, final: Path) -> None:
    """Put a staged directory in the place of whatever ``final`` holds now.

    The old tree is moved aside first, so a reader never sees a mixture; between the two renames
    (microseconds) it may see nothing.
    """
    with disk_errors(f"writing {final}"):
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.is_symlink() or final.exists():
            with staging(final.parent) as graveyard:
                final.rename(graveyard / "old")
                staged.rename(final)
        else:
            staged.rename(final)


def make_dir(path: Path) -> None:
    """Make a directory with its parents; nothing happens when it is there."""
    with disk_errors(f"writing {path}"):
        path.mkdir(parents=True, exist_ok=True)


def write_atomic(path: Path, data: bytes | str, *, mode: int = 0o644) -> None:
    """Write a whole file under its final name, or nothing."""
    with atomic_stream(path, mode=mode) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


@contextlib.contextmanager
def atomic_stream(path: Path, *, mode: int = 0o644) -> Iterator[BinaryIO]:
    """Write a large file piece by piece; it has its final name when it is whole, or never."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=_STAGING_PREFIX, dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w+b") as stream:
                yield stream
            temporary.chmod(mode)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def write_new(path: Path, data: bytes | str, *, executable: bool = False) -> None:
    """Write a file inside a tree that nobody else can see yet; surrogates are bytes."""
    payload = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload)
        if executable:
            path.chmod(0o755)


def write_stream(
    path: Path, chunks: Iterable[bytes], *, append: bool, advance: Callable[[int], None]
) -> None:
    """Write chunks as they come; what came before an interruption stays for the next attempt."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab" if append else "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
                advance(len(chunk))


def rename(source: Path, target: Path) -> None:
    """Give a finished file its final name."""
    with disk_errors(f"writing {target}"):
        source.replace(target)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its execute bit; parents are made."""
    with disk_errors(f"writing {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def copy_atomic(source: Path, target: Path) -> None:
    """Copy a file so that ``target`` is the old one or the whole new one; an open old one stays.

    Raises:
        StorageError: the disk is full or not ours, or a file lies where a directory is meant.
    """
    try:
        with atomic_stream(target, mode=0o755) as stream, source.open("rb") as original:
            shutil.copyfileobj(original, stream)
    except OSError as error:
        raise told(error) from error


def link_or_copy(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, or a copy where the disk cannot link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        copy_file(source, target)


def symlink(target: str, path: Path) -> None:
    """Create a symbolic link, replacing an old one atomically."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_STAGING_PREFIX}{os.getpid()}-{path.name}")
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(target)
        temporary.replace(path)


def remove_tree(path: Path) -> None:
    """Remove a file or a directory; nothing happens when it is not there."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock file; the operating system releases it when the process dies."""
    from filelock import FileLock  # noqa: PLC0415 - the loader must import in milliseconds

    with disk_errors(f"locking {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold an empty directory of ours at exactly this path; yields whether it could be had.

    Another process of this user is waited for. What another user holds, a link, and a parent that
    takes no directories are a no. Whoever is done with the directory removes it; one that is left
    is emptied by the next.
    """
    handle = _claim(path)
    try:
        if handle is not None:
            for entry in path.iterdir():
                remove_tree(entry)
        yield handle is not None
    finally:
        if handle is not None:
            os.close(handle)


def _claim(path: Path) -> int | None:
    """Descriptor that holds the lock of our directory at this path."""
    while True:
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            found = path.lstat()
        except FileNotFoundError:
            if path.parent.is_dir():
                continue  # somebody was done with it just now
            return None
        except OSError:
            return None
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return None
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        fcntl.flock(handle, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.lstat()):
                return handle
        os.close(handle)


def set_times(root: Path, seconds: int) -> bool:
    """Give everything in a tree the same time of change; the tree's own comes last and says so.

    Returns:
        Whether that could be done; not when some of it is another user's.
    """
    if root.stat().st_mtime == seconds:
        return True
    with contextlib.suppress(PermissionError):
        for directory, folders, names in os.walk(root, topdown=False):
            for name in (*folders, *names):
                os.utime(f"{directory}/{name}", (seconds, seconds), follow_symlinks=False)
        os.utime(root, (seconds, seconds))
        return True
    return False


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def gate(path: Path, *, alone: bool, wait: bool = True) -> Iterator[bool]:
    """Hold a lock that many may share, or one alone; yields whether it was had.

    Args:
        path: the lock file.
        alone: whether nobody else may hold it meanwhile.
        wait: whether to wait for the others.
    """
    with disk_errors(f"locking {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        mode = (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB)
        try:
            fcntl.flock(handle, mode)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


def touch(path: Path) -> None:
    """Set a mark's time to now, made if need be; nothing happens where we may not write."""
    with contextlib.suppress(PermissionError):
        try:
            os.utime(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def tree_bytes(path: Path) -> int:
    """Bytes that a tree's files take on the disk."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118
    return total


def write_chunks(path: Path, chunks: Iterable[bytes], *, executable: bool = False) -> None:
    """Write a large file inside a tree that nobody else can see yet."""
    write_stream(path, chunks, append=False, advance=lambda _count: None)
    if executable:
        path.chmod(0o755)
