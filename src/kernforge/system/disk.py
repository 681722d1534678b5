# SPDX-License-Identifier: Apache-2.0
"""Facts about a path: free space, whether it is read-only."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


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
