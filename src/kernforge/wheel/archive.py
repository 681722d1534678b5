# SPDX-License-Identifier: Apache-2.0
"""Write a wheel whose bytes depend on its contents alone.

Members are in a fixed order, with one time and one mode; RECORD comes last. The directory, the
time, the user and the umask change nothing. The compressed bytes are zlib's: another implementation
of zlib may compress the same members differently.

Format: the packaging user guide's "Binary distribution format" (wheel 1.0).
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import stat
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kernforge.system import files
from kernforge.wheel.plan import WheelPlan

# The earliest time of a zip file.
_EARLIEST = 315532800
_CHUNK = 1 << 20


def write(
    plan: WheelPlan, members: Mapping[str, Path | bytes], out: Path, *, seconds: int = 0
) -> Path:
    """Write a wheel into a directory; a file of the same name is replaced atomically.

    Args:
        members: files of the package by their path in the wheel.
        seconds: time of all members in seconds since 1970; a time before 1980 becomes 1980.

    Returns:
        Path of the wheel.
    """
    info = f"{plan.stem}.dist-info"
    described: dict[str, Path | bytes] = {
        f"{info}/METADATA": plan.metadata.encode(),
        f"{info}/WHEEL": _wheel(plan).encode(),
        **{f"{info}/licenses/{name}": text for name, text in plan.licences},
    }
    moment = time.gmtime(max(seconds, _EARLIEST))[:6]
    path = out / plan.file
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")  # a name may have a comma
    with files.atomic_stream(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, content in (*sorted(members.items()), *sorted(described.items())):
            digest, size = _add(archive, name, content, moment)
            rows.writerow((name, f"sha256={digest}", size))
        rows.writerow((f"{info}/RECORD", "", ""))
        _add(archive, f"{info}/RECORD", record.getvalue().encode(), moment)
    return path


def _wheel(plan: WheelPlan) -> str:
    pure = "true" if plan.tag[2] == "any" else "false"
    tag = "-".join(plan.tag)
    return f"Wheel-Version: 1.0\nGenerator: kernforge\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"


def _add(
    archive: zipfile.ZipFile,
    name: str,
    content: Path | bytes,
    moment: tuple[int, int, int, int, int, int],
) -> tuple[str, int]:
    """Add a member; returns its hash in the form of RECORD, and its size in bytes."""
    member = zipfile.ZipInfo(name, moment)
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    member.create_system = 3  # Unix on every system: the mode is read only then
    member.compress_type = zipfile.ZIP_DEFLATED
    digest, size = hashlib.sha256(), 0
    # Set before writing, so that only large members get 64-bit sizes.
    member.file_size = len(content) if isinstance(content, bytes) else content.stat().st_size
    opened = io.BytesIO(content) if isinstance(content, bytes) else content.open("rb")
    with opened as source, archive.open(member, "w") as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), size
