# SPDX-License-Identifier: Apache-2.0
"""The only module that writes, renames, locks and removes files.

A file or tree under its final name is complete: it is written under a temporary name in the same
directory and renamed. A killed process leaves at most ``tmp-kernforge-*``, which a process that
writes there removes after a day.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import math
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from kernforge.errors import StorageError

_PREFIX = "tmp-kernforge-"
_TEMPORARY = rf"{_PREFIX}(?:[a-z0-9_]{{8}}|[0-9a-f]{{32}})"
# What a new file may allow at most; the umask takes from it. The group counts where a team has one
# directory; what everybody could write, a loader would refuse.
_SHARED = 0o664
# No write takes longer.
_LASTS_S = 24 * 3600
# Between two attempts to get a lock.
_SHORTEST_S, _LONGEST_S = 0.001, 0.05
_SAID_S = 3.0  # until a wait for a lock is said
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_FLUSH = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_log = logging.getLogger("kernforge")
# What is written may be a project's, or kernforge's own.
_ELSEWHERE = (
    "write to another directory; that of kernforge's own files is KERNFORGE_HOME, that of files of "
    "a hub HF_HOME"
)
_HINTS = {
    errno.EEXIST: "move what is there, or choose another path",
    errno.ENOTDIR: "a part of the path is a file, and must be a directory",
    errno.EISDIR: "the path is a directory, and must be a file",
    errno.EMFILE: "this process may not open more files: raise the limit (ulimit -n)",
    errno.ENFILE: "this machine has too many open files: end other programs",
    errno.ESTALE: "the file server has replaced it meanwhile: try again",
    errno.EIO: "the disk or the file server fails: see the machine's log (dmesg)",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "a link in the path leads to itself",
    errno.EBUSY: "another program uses it",
    errno.ENOSPC: f"free some space, or {_ELSEWHERE}",
    errno.EDQUOT: f"the quota is used up: free some space, or {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only: {_ELSEWHERE}",
    errno.EACCES: f"check the owner and the permissions, or {_ELSEWHERE}",
    errno.EPERM: f"check the owner and the permissions, or {_ELSEWHERE}",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or write to another file system",
}


@contextlib.contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Turn the errors of a disk that is full, read-only or of another user into ``StorageError``.

    Args:
        what: description of the operation, such as ``"writing /a/b"``.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _HINTS:
            raise
        raise storage_error(error, what) from error


def storage_error(error: OSError, what: str = "") -> StorageError:
    """The error for a user, for an error of the disk in an operation."""
    named = str(error.filename or "")
    places = [place for place in (what, "" if named in what else named) if place]
    missing = "check the path: a part of it is missing" if error.errno == errno.ENOENT else ""
    hint = _HINTS.get(error.errno or 0, missing)
    return StorageError(": ".join([*places, error.strerror or str(error)]), hint=hint)


def temporary() -> Path:
    """Directory for the temporary files of this process and its programs."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise StorageError(
            "no directory for temporary files is writable, so that no program can be started: "
            "TMPDIR, /tmp, /var/tmp and the current directory are full, read-only or of another "
            "user",
            hint="free some space, or set TMPDIR to a writable directory",
        ) from error


def scratch_file(directory: Path) -> BinaryIO:
    """An empty file without a name, on the file system of a directory."""
    with disk_errors(f"writing temporary files to {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
        return cast("BinaryIO", tempfile.TemporaryFile(dir=directory))


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Yield an empty directory inside ``parent``, which is removed at the end if it still exists.

    What killed processes left in ``parent`` more than a day ago is removed first.
    """
    with disk_errors(f"writing under {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        sweep(parent)
        path = parent / f"{_PREFIX}{uuid.uuid4().hex}"
        path.mkdir(mode=_SHARED | 0o111)  # keeps the group of a setgid directory
    try:
        with disk_errors(f"writing under {parent}"):
            yield path
    finally:
        remove_tree(path)


def sweep(directory: Path, names: str = _TEMPORARY) -> None:
    """Remove what killed processes of this user left in a directory more than a day ago.

    Args:
        names: a regular expression of the names to remove.
    """
    horizon = time.time() - _LASTS_S
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if not re.fullmatch(names, entry.name) or entry.is_symlink():
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and status.st_mtime < horizon:
                    remove_tree(Path(entry.path))


def publish_tree(staged: Path, final: Path) -> bool:
    """Rename a staged directory or file to its final name, unless another process did so before.

    Returns:
        Whether this call published it.
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


def flush(path: Path) -> None:
    """Get a file or the files of a tree onto the disk before they are renamed to their final names.

    Without it a machine that loses its power may show the new name with an empty file.
    """
    with disk_errors(f"writing {path}"):
        for directory, _, names in os.walk(path):
            for name in names:
                if not os.path.islink(inside := f"{directory}/{name}"):  # noqa: PTH114
                    _flush_one(inside)
            _flush_one(directory)
        if not path.is_dir():
            _flush_one(str(path))


def _flush_one(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        _fsync(descriptor)
    finally:
        os.close(descriptor)


def _fsync(descriptor: int) -> None:
    """Get an open file onto the disk, where its file system can do that."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise


def replace_tree(staged: Path, final: Path) -> None:
    """Replace a directory by a staged directory.

    The old tree is renamed first, so that a reader never finds a mixture; between the two renames
    (microseconds) a reader may find nothing.
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
    """Make a directory with its parents; nothing happens if it exists."""
    with disk_errors(f"writing {path}"):
        path.mkdir(parents=True, exist_ok=True)


def new_dir(parent: Path, prefix: str) -> Path:
    """Make an empty directory with a name that no other has, open to this user only."""
    with disk_errors(f"writing under {parent}"):
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=prefix, dir=parent))


def write_atomic(
    path: Path, data: bytes | str, *, mode: int = _SHARED, durable: bool = True
) -> None:
    """Write a complete file under its final name, or nothing.

    Args:
        mode: what the file allows at most, less the umask.
        durable: whether that holds after a crash of the machine too; not worth its time for what is
            only there to save time.
    """
    with atomic_stream(path, mode=mode, durable=durable) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def write_json(path: Path, value: object) -> None:
    """Remember a JSON value that ``read_json`` gives back; for what only saves time."""
    write_atomic(path, json.dumps(value, sort_keys=True), durable=False)


def read_json(path: Path) -> Any:
    """The JSON value that was remembered; None if nothing was, or if it is damaged."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def atomic_stream(path: Path, *, mode: int = _SHARED, durable: bool = True) -> Iterator[BinaryIO]:
    """Write a large file in pieces; it gets its final name when it is complete."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_PREFIX}{uuid.uuid4().hex}")
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(handle, "w+b") as stream:
            try:
                yield stream
                stream.flush()
                if durable:
                    _fsync(handle)
                temporary.replace(path)
            except BaseException:
                # Only here: after the replacement the name may be that of another process's file.
                temporary.unlink(missing_ok=True)
                raise


def write_new(path: Path, data: bytes | str, *, executable: bool = False) -> None:
    """Write a file inside a tree that is not published yet; surrogates are bytes."""
    payload = data.encode(errors="surrogateescape") if isinstance(data, str) else data
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(payload)
        if executable:
            _set_mode(path, executable=True)


def append(path: Path, text: str) -> None:
    """Append to a file that exists; what one call appends is not mixed with that of another."""
    with disk_errors(f"writing {path}"):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, text.encode(errors="surrogateescape"))
        finally:
            os.close(descriptor)


def shared_path(descriptor: int) -> str:
    """A path by which other processes append to an open file, pipe or terminal of this one."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)  # else one overwrites the other
    return f"/proc/{os.getpid()}/fd/{descriptor}"


def write_stream(path: Path, chunks: Iterable[bytes], advance: Callable[[int], None]) -> None:
    """Append chunks as they arrive; after an interruption the next attempt goes on."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            for chunk in chunks:
                stream.write(chunk)
                advance(len(chunk))


def copy_slice(source: Path, target: Path, offset: int, size: int) -> None:
    """Write a new file with a part of another one."""
    with disk_errors(f"writing {target}"), source.open("rb") as whole, target.open("wb") as part:
        whole.seek(offset)
        while size and (chunk := whole.read(min(size, 1 << 20))):
            part.write(chunk)
            size -= len(chunk)


def copy_file(source: Path, target: Path) -> None:
    """Copy a file with its execute bit, and make its parent directories."""
    with disk_errors(f"writing {target}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        _set_mode(target, executable=os.access(source, os.X_OK))


def _set_mode(path: Path, *, executable: bool) -> None:
    """Let those users execute a file who may read it, or none; the umask has made the rest."""
    mode = path.stat().st_mode & _SHARED
    path.chmod(mode | (mode & 0o444) >> 2 if executable else mode)


def copy_atomic(source: Path, target: Path) -> None:
    """Copy a program or library atomically; a process that has the old file open keeps it."""
    with atomic_stream(target, mode=_SHARED | 0o111) as stream, source.open("rb") as original:
        shutil.copyfileobj(original, stream)


def symlink(target: str, path: Path) -> None:
    """Create a symbolic link, replacing an old one atomically."""
    with disk_errors(f"writing {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{_PREFIX}{uuid.uuid4().hex}")
        temporary.symlink_to(target)
        temporary.replace(path)


def remove_tree(path: Path) -> None:
    """Remove a file or a directory; nothing happens if it does not exist.

    A program may have left directories that it closed: they are opened first.
    """
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, onerror=_open_and_retry)


def _open_and_retry(remove: Callable[[str], object], path: str, _error: object) -> None:
    with contextlib.suppress(OSError):
        for each in (Path(path).parent, Path(path)):
            if each.is_dir() and not each.is_symlink():
                each.chmod(0o700)
        if Path(path).is_dir() and not Path(path).is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            remove(path)


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[bool]:
    """Hold an empty directory of this user at exactly this path; yields whether that succeeded.

    The function waits for other processes of this user. It fails for a directory of another user,
    for a link, if the parent is not writable, if its file system has no locks, and if what was left
    cannot be removed. The caller removes the directory at the end; one that was left is emptied by
    the next caller.
    """
    handle = _claim(path)
    try:
        if handle is not None:
            for entry in path.iterdir():
                remove_tree(entry)
        yield handle is not None and not any(path.iterdir())
    finally:
        if handle is not None:
            _close(handle)


def _claim(path: Path) -> int | None:
    """Descriptor that holds the lock of the directory at this path."""
    while True:
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
            status = path.lstat()
        except FileNotFoundError:
            if path.parent.is_dir():
                continue  # another process has just removed it
            return None
        except OSError:
            return None
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            return None
        try:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        has_locks = _lock(handle, path)
        if has_locks and _is_at(handle, path):
            return handle
        _close(handle)
        if not has_locks:
            return None


def set_times(root: Path, seconds: int) -> None:
    """Set one modification time in a whole tree; that of the root comes last and marks the tree.

    What has the time already is not written, so that its time of change stays. Nothing follows a
    part that belongs to another user.
    """
    if root.stat().st_mtime == seconds:
        return
    with contextlib.suppress(PermissionError):
        for directory, folders, names in os.walk(root, topdown=False):
            for name in (*folders, *names):
                path = f"{directory}/{name}"
                if os.lstat(path).st_mtime != seconds:
                    os.utime(path, (seconds, seconds), follow_symlinks=False)
        os.utime(root, (seconds, seconds))


def sha256_file(path: Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an advisory lock file; the operating system releases it when the process ends.

    On a file system without locks, a second file is the lock, which only one process can create.

    Raises:
        InterruptedError: see ``cancel_waits``.
    """
    while True:
        with disk_errors(f"locking {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, _SHARED)
        try:
            if not _lock(handle, path):
                with _created(Path(f"{path}.held")):
                    yield
                return
            if _is_at(handle, path):  # it may have been removed between the two
                os.utime(handle)  # young, so that ``sweep`` leaves it
                yield
                return
        finally:
            _close(handle)


@contextlib.contextmanager
def _created(path: Path) -> Iterator[None]:
    here = os.uname().nodename

    def create() -> bool:
        try:
            with path.open("x") as stream:
                stream.write(f"{os.getpid()} on {here}")
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError, PermissionError, ValueError):
                pid, node = path.read_text().split(" on ")
                try:
                    os.kill(int(pid) if node == here else os.getpid(), 0)
                except ProcessLookupError:  # it was killed
                    path.unlink()
            return False
        return True

    _wait(create, path, lambda: f"process {path.read_text()} (if it has ended, remove this file)")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _is_at(handle: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False


def _lock(handle: int, path: Path) -> bool:
    """Lock an open file; waits for others who hold it. False if its file system has no locks."""

    def lock() -> bool:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        return False

    _held.add(handle)
    try:
        with disk_errors(f"locking {path}"):
            _wait(lock, path, lambda: _holder(handle))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _wait(take: Callable[[], bool], path: Path, holder: Callable[[], str]) -> None:
    """Take a lock as soon as its holder gives it up; a long wait is said."""
    cancelled, pause, said_at = _cancelled, _SHORTEST_S, time.monotonic() + _SAID_S
    while not take():
        if cancelled != _cancelled:
            raise InterruptedError(
                errno.EINTR, "interrupted while another process uses it", str(path)
            )
        if time.monotonic() > said_at:
            said_at = math.inf
            with contextlib.suppress(FileNotFoundError):
                _log.warning("waiting for %s, which uses %s", holder(), path)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_S)


def _holder(handle: int) -> str:
    """The process that holds the lock of an open file, in words."""
    inode = str(os.fstat(handle).st_ino)
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK  ADVISORY  WRITE 4711 08:01:262146 0 EOF
            _, kind, _, _, pid, file, *_ = line.split()
            if kind == "FLOCK" and file.endswith(f":{inode}") and int(pid) > 0:
                return f"process {pid}"
    return "a process of another container or machine"


_held: set[int] = set()  # descriptors of locks


def _close(handle: int) -> None:
    if handle in _held:  # not in a process that was forked meanwhile
        _held.discard(handle)
        os.close(handle)


def _close_all() -> None:
    """In a forked process, which would hold the locks of its parent's threads."""
    for handle in tuple(_held):
        _close(handle)


os.register_at_fork(after_in_child=_close_all)


_cancelled = 0


def cancel_waits() -> None:
    """End every wait of another thread for a lock; it raises InterruptedError."""
    global _cancelled  # noqa: PLW0603 - one value of the process, as its programs are
    _cancelled += 1


def touch(path: Path) -> None:
    """Set a file's time to now, and make it if it is missing; nothing without the permission."""
    with contextlib.suppress(PermissionError):
        try:
            os.utime(path)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def tree_bytes(path: Path) -> int:
    """Size of a tree's files on the disk in bytes."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(directory, name)).st_blocks * 512  # noqa: PTH118
    return total


def refuse_writable(path: Path) -> None:
    """Refuse a world-writable file or directory.

    In a directory with the sticky bit, such as ``/tmp``, a user cannot replace the file of another.
    """
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        raise StorageError(
            f"{path} is world-writable, so that its content proves nothing",
            hint=f"chmod o-w '{path}'; then see that what it holds is yours",
        )
