# SPDX-License-Identifier: Apache-2.0
"""Write a wheel whose bytes follow from its contents alone.

Members are in a fixed order, with one time and one mode; RECORD comes last. Where, when and by
whom it is written, and with which umask, changes nothing. The compressed bytes are zlib's: another
implementation of it may pack the same RECORD differently.

Format: the packaging user guide's "Binary distribution format" (wheel 1.0).
"""

from __future__ import annotations

import base64
import hashlib
import stat
import time
import zipfile
from typing import IO, TYPE_CHECKING

from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.wheel.plan import Plan

# Zip files know no earlier time.
_EARLIEST = 315532800
_CHUNK = 1 << 20


def write(plan: Plan, members: Mapping[str, Path | bytes], out: Path, *, seconds: int = 0) -> Path:
    """Write a wheel into a directory; an older file of that name is replaced as a whole.

    Args:
        plan: what the wheel is called and says.
        members: the package's files by their path in the wheel.
        out: the directory.
        seconds: time of all members since 1970; before 1980 is 1980.

    Returns:
        The wheel.
    """
    info = f"{plan.stem}.dist-info"
    described: dict[str, Path | bytes] = {
        f"{info}/METADATA": plan.metadata.encode(),
        f"{info}/WHEEL": _wheel(plan).encode(),
        **{f"{info}/licenses/{name}": text for name, text in plan.licences},
    }
    moment = time.gmtime(max(seconds, _EARLIEST))[:6]
    path = out / plan.file
    lines = []
    with files.atomic_stream(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        for name, content in (*sorted(members.items()), *sorted(described.items())):
            digest, size = _add(archive, name, content, moment)
            lines.append(f"{name},sha256={digest},{size}\n")
        record = f"{info}/RECORD"
        _add(archive, record, "".join((*lines, f"{record},,\n")).encode(), moment)
    return path


def _wheel(plan: Plan) -> str:
    pure = "true" if plan.tag[2] == "any" else "false"
    tag = "-".join(plan.tag)
    return f"Wheel-Version: 1.0\nGenerator: kernforge\nRoot-Is-Purelib: {pure}\nTag: {tag}\n"


def _add(
    archive: zipfile.ZipFile,
    name: str,
    content: Path | bytes,
    moment: tuple[int, int, int, int, int, int],
) -> tuple[str, int]:
    """Add a member; its hash as RECORD spells it, and its size."""
    member = zipfile.ZipInfo(name, moment)
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    member.create_system = 3  # Unix, whatever writes it: the mode is read only then
    member.compress_type = zipfile.ZIP_DEFLATED
    digest, size = hashlib.sha256(), 0
    # Known before, so that large members, and only these, get 64-bit sizes.
    member.file_size = len(content) if isinstance(content, bytes) else content.stat().st_size
    with archive.open(member, "w") as target:
        if isinstance(content, bytes):
            target.write(content)
            digest.update(content)
            size = len(content)
        else:
            with content.open("rb") as source:
                size = _copy(source, target, digest)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode(), size


def _copy(source: IO[bytes], target: IO[bytes], digest: hashlib._Hash) -> int:
    size = 0
    while chunk := source.read(_CHUNK):
        target.write(chunk)
        digest.update(chunk)
        size += len(chunk)
    return size
