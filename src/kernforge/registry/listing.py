# SPDX-License-Identifier: Apache-2.0
"""The index files of a registry: its references, and the files of a commit with their hashes.

A web server and a bucket answer no questions, so publishing writes the answers beside the files::

    kernels--<owner>--<name>/
        refs.json                  {"schema": 1, "refs": {name: commit}}
        listings/<commit>.json     {"schema": 1, "files": {path: [size, hash, pack?, offset?]}}
        blobs/<sha256>             every file once
        packs/<sha256>             the small files of one folder, one after the other

A load requests the references, the listing, the pack of its variant and each large file. The cache
of a server keeps its listings in the same form.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernforge.errors import IntegrityError
from kernforge.registry.names import COMMIT, SHA256, is_ref
from kernforge.system import untrusted
from kernforge.system.digest import sha256

REFS = "refs.json"
SMALL = 1 << 18
"""Bytes of the largest file in a pack."""
_SCHEMA = 1
# The exceptions of readers of malformed documents.
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file in a listing.

    Attributes:
        size: bytes.
        blob: the name of its content in a cache: hex SHA-256, or git's hex SHA-1 of a small file
            on a hub. The bytes that arrive must have this hash.
        pack: hex SHA-256 of an object that has the bytes of several files; empty if the content
            is an object of its own.
        offset: position of the file in its pack, in bytes.
    """

    size: int
    blob: str
    pack: str = ""
    offset: int = 0

    @property
    def object(self) -> str:
        """The hash of the object that has its bytes."""
        return self.pack or self.blob

    @property
    def place(self) -> str:
        """That object's place in the directory of a kernel."""
        return f"{'packs' if self.pack else 'blobs'}/{self.object}"


def valid_file(path: Any, size: Any, blob: Any, pack: Any = "", offset: Any = 0) -> RemoteFile:
    """A file of an untrusted listing."""
    plain = _is_plain(path)
    sizes = 0 <= size <= untrusted.FILE and 0 <= offset <= untrusted.FILE
    hashes = COMMIT.fullmatch(blob) and (not pack or SHA256.fullmatch(pack))
    if not (plain and sizes and hashes):
        raise ValueError(
            f"the file {path[:200]!r} of {size} bytes with content {blob[:80]!r} is not valid"
        )
    return RemoteFile(size=int(size), blob=blob, pack=pack, offset=int(offset))


def _is_plain(path: str) -> bool:
    plain = path.isprintable() and "\\" not in path and len(path) <= untrusted.NAME
    return plain and not {"", ".", ".."}.intersection(path.split("/"))


def refuse_paths(where: str, paths: Collection[str]) -> None:
    """Refuse the files of a commit that no registry can hold; readers and writers ask it.

    Two paths that differ in case alone are one file on a disk that ignores case.

    Raises:
        IntegrityError: it names the path.
    """
    if len(paths) > untrusted.MEMBERS:
        raise IntegrityError(
            f"{where} lists more than {untrusted.MEMBERS:,} files", hint="publish fewer files"
        )
    seen: dict[str, str] = {}
    for path in paths:
        if not _is_plain(path):
            raise IntegrityError(
                f"{where} lists {path[:200]!r}, which is no path in a registry",
                hint="ask its publisher to rename it: printable characters, no backslash",
            )
        for place in itertools.accumulate(path.split("/"), "{}/{}".format):
            if (other := seen.setdefault(place.casefold(), place)) != place:
                raise IntegrityError(
                    f"{where} lists both {other!r} and {place!r}, which differ in case alone",
                    hint="ask its publisher to rename one of them",
                )


def write_listing(files: Mapping[str, RemoteFile]) -> str:
    """The document of a commit's files."""
    rows = {
        path: [f.size, f.blob, *([f.pack, f.offset] if f.pack else [])]
        for path, f in sorted(files.items())
    }
    return json.dumps({"schema": _SCHEMA, "files": rows})


def read_listing(data: bytes) -> dict[str, RemoteFile]:
    """The files of an untrusted document; raises one of ``MALFORMED``."""
    rows = _read(data)["files"]
    if len(rows) > untrusted.MEMBERS:
        raise ValueError(f"it lists more than {untrusted.MEMBERS:,} files")
    files = {path: valid_file(path, *row) for path, row in rows.items()}
    _refuse_overlaps(files)
    return files


def _refuse_overlaps(files: Mapping[str, RemoteFile]) -> None:
    """Refuse overlapping slices: a pack of 1 MB would fill a disk."""
    slices = {(f.pack, f.offset, f.size, f.blob) for f in files.values() if f.pack and f.size}
    end = ("", 0)
    for pack, offset, size, _ in sorted(slices):
        if (pack, offset) < end:
            raise ValueError(f"its files overlap in the pack {pack}")
        end = (pack, offset + size)


def write_refs(refs: Mapping[str, str]) -> str:
    """The document of a kernel's references."""
    return json.dumps({"schema": _SCHEMA, "refs": dict(sorted(refs.items()))})


def read_refs(data: bytes) -> dict[str, str]:
    """The references of an untrusted document; raises one of ``MALFORMED``."""
    return valid_refs(_read(data)["refs"])


def valid_refs(refs: dict[str, str]) -> dict[str, str]:
    """The references of an untrusted server."""
    for name, commit in refs.items():
        if not is_ref(name) or not COMMIT.fullmatch(commit):
            raise ValueError(f"the reference {name[:200]!r} names {commit[:80]!r}")
    return refs


def _read(data: bytes) -> Any:
    document = untrusted.parse_json(data)
    if document["schema"] != _SCHEMA:
        raise ValueError("it was written by a newer kernforge")
    return document


def folder_of(path: str) -> str:
    """The folder whose files are loaded together: a variant, or another folder of a commit."""
    parts = path.split("/")
    return "/".join(parts[: 2 if parts[0] == "build" else 1][: len(parts) - 1])


def pack(
    files: Mapping[str, RemoteFile], local: Mapping[str, Path]
) -> tuple[dict[str, RemoteFile], dict[str, bytes]]:
    """Pack the small files of each folder.

    Args:
        local: the content of each file, by path.

    Returns:
        The files with their places, and the packs by hex SHA-256.
    """
    folders: dict[str, dict[str, RemoteFile]] = {}
    for path, file in sorted(files.items()):
        if file.size <= SMALL:
            folders.setdefault(folder_of(path), {})[path] = file
    placed, packs = dict(files), {}
    for members in folders.values():
        if len(members) > 1:
            data = b"".join(local[path].read_bytes() for path in members)
            packs[name := sha256(data)] = data
            offset = 0
            for path, file in members.items():
                placed[path] = replace(file, pack=name, offset=offset)
                offset += file.size
    return placed, packs
