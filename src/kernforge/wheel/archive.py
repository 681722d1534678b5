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

from kernforge.system import files, own_files
from kernforge.wheel.plan import WheelPlan

_EARLIEST = 315532800  # the earliest time of a zip file


def write(
    plan: WheelPlan,
    members: Mapping[str, Path | bytes],
    out: Path,
    home: Path,
    *,
    seconds: int = 0,
) -> Path:
    """Write a wheel into a directory; one that kernforge wrote before is replaced atomically.

    Args:
        members: files of the package by their path in the wheel.
        home: ``KERNFORGE_HOME``.
        seconds: time of all members in seconds since 1970; a time before 1980 becomes 1980.
    """
    info = f"{plan.stem}.dist-info"
    pure = "true" if plan.tag[2] == "any" else "false"
    wheel = f"Wheel-Version: 1.0\nGenerator: kernforge\nRoot-Is-Purelib: {pure}\n"
    described: dict[str, Path | bytes] = {
        f"{info}/METADATA": plan.metadata.encode(),
        f"{info}/WHEEL": f"{wheel}Tag: {'-'.join(plan.tag)}\n".encode(),
        **{f"{info}/licenses/{name}": text for name, text in plan.licences.items()},
    }
    moment = time.gmtime(max(seconds, _EARLIEST))[:6]
    path = out / plan.file
    own_files.refuse(path, home, hint="remove it, or name another directory with --out")
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")  # a name may have a comma
    with files.atomic_stream(path) as stream, zipfile.ZipFile(stream, "w") as archive:

        def add(name: str, data: bytes) -> None:
            member = zipfile.ZipInfo(name, moment)
            member.external_attr = (stat.S_IFREG | 0o644) << 16
            member.create_system = 3  # Unix on every system: the mode is read only then
            archive.writestr(member, data, zipfile.ZIP_DEFLATED)

        for name, content in (*sorted(members.items()), *sorted(described.items())):
            data = content if isinstance(content, bytes) else content.read_bytes()
            add(name, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.writerow((name, f"sha256={digest}", len(data)))
        rows.writerow((f"{info}/RECORD", "", ""))
        add(f"{info}/RECORD", record.getvalue().encode())
    own_files.remember(path, home)
    return path
