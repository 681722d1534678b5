# SPDX-License-Identifier: Apache-2.0
"""What attacks look for, and archives that are made to do harm."""

import io
import tarfile
from dataclasses import dataclass

SECRET = "-----BEGIN PRIVATE KEY-----\nsecret\n"  # noqa: S105 - nobody's


def holds(root, text=SECRET):
    """Files of a tree that hold a text."""
    wanted = text.encode()
    return [
        path
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and wanted in path.read_bytes()
    ]


@dataclass
class Member:
    """A member of an archive; a link has a target."""

    name: str
    data: bytes = b"evil"
    kind: bytes = tarfile.REGTYPE
    target: str = ""


def link(name, target, kind=tarfile.SYMTYPE):
    return Member(name, b"", kind, target)


def tar(members, top=""):
    """A tar file as it is, whatever its names and links lead to."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            info = tarfile.TarInfo(top + member.name)
            info.type, info.linkname, info.size = member.kind, member.target, len(member.data)
            archive.addfile(info, io.BytesIO(member.data))
    return out.getvalue()
