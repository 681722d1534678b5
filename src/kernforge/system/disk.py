# SPDX-License-Identifier: Apache-2.0
"""What a disk and the system say of a place: room, kind of file system, who has a file open."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import tempfile
from pathlib import Path

# The kernel writes a space, a tab, a newline and a backslash of a path so; all else is as it is.
_OCTAL = re.compile(r"\\([0-7]{3})")


def room(path: Path) -> tuple[int, str]:
    """Bytes that this user may still write where a path is or would be, and why none can be.

    It is tried by writing; what does not exist yet is judged by the directory that would hold it.
    """
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    found = os.statvfs(there)
    try:
        with tempfile.TemporaryFile(dir=there) as stream:
            stream.write(bytes(1 << 16))
    except OSError as error:
        return found.f_bavail * found.f_frsize, error.strerror or str(error)
    return found.f_bavail * found.f_frsize, ""


def filesystem(path: Path) -> str:
    """Type of the file system that holds a path, as ``ext4``; empty when nobody says."""
    return _holds(os.path.realpath(path), Path("/proc/self/mounts"))


def _holds(real: str, table: Path) -> str:
    found = ("", "")
    with contextlib.suppress(OSError):
        for line in table.read_text(errors="surrogateescape").splitlines():
            _, mount, kind, *_ = line.split(" ")
            mount = _OCTAL.sub(lambda found: chr(int(found[1], 8)), mount)
            # The last one mounted on a place is the one that is seen.
            if f"{real}/".startswith(f"{mount.rstrip('/')}/") and len(mount) >= len(found[0]):
                found = (mount, kind)
    return found[1]


def is_open(path: Path) -> bool | None:
    """Whether any process of this machine has a file open; None when that cannot be known.

    The kernel grants a write lease only on a file that nobody else has open, and to its owner only;
    it sees processes of other containers too, which ``/proc`` does not show.
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
