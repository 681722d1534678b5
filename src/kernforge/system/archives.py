# SPDX-License-Identifier: Apache-2.0
"""Unpack archives of others: the one way for source distributions, wheels and packed trees.

Members stay below the directory that is given: ``tarfile``'s data filter refuses absolute names,
``..``, links that lead out, and devices. What all members take together is bounded.
"""

from __future__ import annotations

import tarfile
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

from kernforge import untrusted
from kernforge.errors import IntegrityError
from kernforge.system import files

LARGEST = 24 << 30
"""Bytes of the largest tree that the store takes: a CUDA toolkit has some 5 GB."""
LARGEST_SOURCES = 1 << 30
"""Bytes of the largest source distribution that is unpacked."""
_HINT = "the archive is damaged or was made to do harm: do not use it"


def unpack_tar(
    stream: IO[bytes],
    into: Path,
    source: str,
    *,
    mode: Literal["r:*", "r|"] = "r:*",
    limit: int = LARGEST,
) -> None:
    """Unpack a tar into a directory; after an error the caller removes what was unpacked.

    Args:
        source: the archive, as errors call it.
        mode: of ``tarfile.open``.
        limit: bytes of all members together.

    Raises:
        IntegrityError: it is damaged, too large, or leads out of the directory.
    """
    total = count = 0

    def bounded(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        nonlocal total, count
        total, count = total + member.size, count + 1
        _check_size(source, total, count, limit)
        safe = tarfile.data_filter(member, path)
        # The time of a file is that of its unpacking, as for every other file.
        return safe.replace(mtime=None, deep=False)  # type: ignore[arg-type]  # None leaves it

    with _reading(source), tarfile.open(fileobj=stream, mode=mode) as archive:
        archive.extractall(into, filter=bounded)  # noqa: S202 - the filter is the data filter


def unpack_zip(stream: IO[bytes], into: Path, source: str, *, limit: int = LARGEST) -> None:
    """Unpack a zip archive; arguments and errors are those of ``unpack_tar``."""
    with _reading(source), zipfile.ZipFile(stream) as archive:
        infos = [info for info in archive.infolist() if not info.is_dir()]
        # zipfile reads no more of a member than the directory says.
        _check_size(source, sum(info.file_size for info in infos), len(infos), limit)
        for info in infos:
            executable = bool(info.external_attr >> 16 & 0o100)
            write_member(into, info.filename, archive.read(info), source, executable=executable)


def write_member(
    into: Path, name: str, content: bytes, source: str, *, executable: bool = False
) -> None:
    """Write a member into a directory that holds no links and that only this process writes to.

    Raises:
        IntegrityError: its name leads out of the directory.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise IntegrityError(f"{source}: {name!r} leads out of the archive", hint=_HINT)
    files.write_new(into / path, content, executable=executable)


def _check_size(source: str, total: int, count: int, limit: int) -> None:
    if total > limit or count > untrusted.MEMBERS:
        raise IntegrityError(
            f"{source} unpacks to more than {limit / 1e9:,.0f} GB or {untrusted.MEMBERS:,} files",
            hint=_HINT,
        )


def _reading(source: str) -> AbstractContextManager[None]:
    return untrusted.foreign_parser(
        lambda reason: IntegrityError(f"{source} cannot be unpacked: {reason}", hint=_HINT)
    )
