# SPDX-License-Identifier: Apache-2.0
"""Wheels for the tests' own package index."""

import base64
import hashlib
import zipfile
from pathlib import Path


def make_wheel(
    path: Path, members: dict[str, bytes], *, tampered: tuple[str, ...] = (), record: bool = True
) -> Path:
    """Write a wheel; the RECORD lies about the members named in ``tampered``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name, version = path.name.split("-")[:2]
    lines = []
    for member, data in members.items():
        promised = b"something else" if member in tampered else data
        digest = base64.urlsafe_b64encode(hashlib.sha256(promised).digest()).rstrip(b"=").decode()
        lines.append(f"{member},sha256={digest},{len(data)}\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in members.items():
            archive.writestr(zipfile.ZipInfo(member), data, zipfile.ZIP_DEFLATED)
        if record:
            archive.writestr(f"{name}-{version}.dist-info/RECORD", "".join(lines))
    return path
