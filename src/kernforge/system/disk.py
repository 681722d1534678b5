# SPDX-License-Identifier: Apache-2.0
"""Facts about a path: free space, type of the file system, whether a process has a file open."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
from pathlib import Path

# The kernel writes a space, a tab, a newline and a backslash in a path as octal numbers.
_OCTAL = re.compile(r"\\([0-7]{3})")


def room(path: Path) -> tuple[int, str]:
    """Free space in bytes for this user at a path, and why nothing can be written; "" if it can.

    The function tries to write. A path that does not exist is judged by its nearest directory.
    """
    directory = next(p for p in (path, *path.absolute().parents) if p.exists())
    status = os.statvfs(directory)
    try:
        with tempfile.TemporaryFile(dir=directory) as stream:
            stream.write(bytes(1 << 16))
    except OSError as error:
        return status.f_bavail * status.f_frsize, error.strerror or str(error)
    return status.f_bavail * status.f_frsize, ""


def is_read_only(path: Path) -> bool:
    """Whether the file system of a path that exists is mounted read-only."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def filesystem(path: Path) -> str:
    """Type of the file system of a path, such as ``ext4``; empty if unknown."""
    return _mounted_type(os.path.realpath(path), Path("/proc/self/mounts"))


def _mounted_type(real: str, table: Path) -> str:
    best = ("", "")
    with contextlib.suppress(OSError):
        for line in table.read_text(errors="surrogateescape").splitlines():
            _, mount, kind, *_ = line.split(" ")
            mount = _OCTAL.sub(lambda best: chr(int(best[1], 8)), mount)
            # If several file systems are mounted at a path, the last one is visible.
            if f"{real}/".startswith(f"{mount.rstrip('/')}/") and len(mount) >= len(best[0]):
                best = (mount, kind)
    return best[1]


def is_open(path: Path) -> bool | None:
    """Whether any process of this machine has a file open; None if that cannot be found out.

    The kernel grants a write lease only on a file that no other process has open, and only to its
    owner. This includes processes of other containers, which ``/proc`` does not show.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(handle)
    return False
