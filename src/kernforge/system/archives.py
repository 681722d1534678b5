# SPDX-License-Identifier: Apache-2.0
"""Unpack untrusted archives: wheels, and packed trees of a shared store.

Members stay below the directory that is given: ``tarfile``'s data filter refuses absolute names,
``..``, links that lead out, and devices. What all members take together is bounded.
"""

from __future__ import annotations

import tarfile
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import IO

from kernforge import untrusted
from kernforge.errors import IntegrityError
from kernforge.system import files

LARGEST = 24 << 30
"""Bytes of the largest tree that the store takes: a CUDA toolkit has some 5 GB."""
_HINT = "the archive is damaged or was made to do harm: do not use it"


def unpack_tar(stream: IO[bytes], into: Path, source: str) -> None:
    """Unpack a stream of a tar; after an error the caller removes what was unpacked.

    Args:
        source: the archive, as errors call it.

    Raises:
        IntegrityError: it is damaged, too large, or leads out of the directory.
    """
    total = count = 0

    def bounded(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        nonlocal total, count
        total, count = total + member.size, count + 1
        _check_size(source, total, count)
        safe = tarfile.data_filter(member, path)
        # The time of a file is that of its unpacking, as for every other file.
        return safe.replace(mtime=None, deep=False)  # type: ignore[arg-type]  # None leaves it

    with _reading(source), tarfile.open(fileobj=stream, mode="r|") as archive:
        archive.extractall(into, filter=bounded)  # noqa: S202 - the filter is the data filter


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


def _check_size(source: str, total: int, count: int) -> None:
    if total > LARGEST or count > untrusted.MEMBERS:
        raise IntegrityError(
            f"{source} unpacks to more than {LARGEST / 1e9:,.0f} GB or {untrusted.MEMBERS:,} files",
            hint=_HINT,
        )


def _reading(source: str) -> AbstractContextManager[None]:
    return untrusted.foreign_parser(
        lambda reason: IntegrityError(f"{source} cannot be unpacked: {reason}", hint=_HINT)
    )
