# SPDX-License-Identifier: Apache-2.0
"""A tree as one stream of bytes: the same bytes for the same tree, and verified when unpacked.

The stream is a line ``kernforge-tree 1 <sha256 of the tar>`` and the tar, compressed with zlib. The
tar holds names, contents, execute bits and symbolic links, in the order of the names; no times, no
owners. zlib and not zstd, because every Python that kernforge runs on can read it: one store
serves machines with different Pythons.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from kernforge.errors import IntegrityError
from kernforge.system import files, untrusted

LARGEST = 24 << 30
"""Bytes of the largest tree that the store takes: a CUDA toolkit has some 5 GB."""

_MAGIC = b"kernforge-tree 1 "
_LINE = len(_MAGIC) + 64 + 1
_LEVEL = 1
_CHUNK = 1 << 20


class _Sink(io.RawIOBase):
    """A file whose content goes to a function."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a tar writes bytes alone
        self._take(data)
        return len(data)


def tree_hash(tree: Path) -> str:
    """Hex SHA-256 of a tree's tar, which is in the first line of a stream."""
    hasher = hashlib.sha256()
    write_tar(tree, _Sink(hasher.update))
    return hasher.hexdigest()


def pack(tree: Path, out: IO[bytes], sha256: str = "") -> None:
    """Write a tree to a stream. Its hash comes first; it is read for that unless it is given."""
    out.write(_MAGIC + (sha256 or tree_hash(tree)).encode() + b"\n")
    compressor = zlib.compressobj(_LEVEL)
    write_tar(tree, _Sink(lambda data: out.write(compressor.compress(data))))
    out.write(compressor.flush())


def read_hash(stream: IO[bytes]) -> str:
    """The hash in the first line of a stream."""
    line = stream.read(_LINE)
    if not line.startswith(_MAGIC) or len(line) != _LINE:
        raise IntegrityError("it is not a packed tree of this version of kernforge")
    return line[len(_MAGIC) : -1].decode(errors="replace")


def unpack(stream: IO[bytes], into: Path, sha256: str = "") -> None:
    """Read a tree from a stream into an empty directory; nothing is extracted of a damaged one.

    Args:
        sha256: the hash of the stream's first line, where that line was read before.
    """
    expected = sha256 or read_hash(stream)
    with (
        untrusted.foreign_parser(lambda reason: IntegrityError(f"it is damaged: {reason}")),
        files.scratch_file(into) as plain,
    ):
        actual = _decompress(stream, plain)
        if actual != expected:
            raise IntegrityError(f"its sha256 is {actual}, {expected} was promised")
        plain.seek(0)
        _extract(plain, into)


def _decompress(stream: IO[bytes], plain: IO[bytes]) -> str:
    """Write a stream's tar to a file; returns its hash."""
    decompressor, hasher = zlib.decompressobj(), hashlib.sha256()
    while data := decompressor.unconsumed_tail or stream.read(_CHUNK):
        chunk = decompressor.decompress(data, _CHUNK)
        hasher.update(chunk)
        _refuse_large(plain.tell() + len(chunk), 0)
        plain.write(chunk)
    if not decompressor.eof:
        raise EOFError("it is cut off")
    return hasher.hexdigest()


def _extract(plain: IO[bytes], into: Path) -> None:
    """Extract an untrusted tar.

    ``tarfile``'s data filter refuses absolute names, ``..``, links that lead out, and devices.
    """
    total = count = 0

    def bounded(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        nonlocal total, count
        total, count = total + member.size, count + 1
        _refuse_large(total, count)
        safe = tarfile.data_filter(member, path)
        # The time of a file is that of its extraction, as for every other file.
        return safe.replace(mtime=None, deep=False)  # type: ignore[arg-type]  # None leaves it

    with tarfile.open(fileobj=plain, mode="r:") as archive:
        archive.extractall(into, filter=bounded)  # noqa: S202 - the filter is the data filter


def _refuse_large(size: int, count: int) -> None:
    if size > LARGEST or count > untrusted.MEMBERS:
        raise IntegrityError(
            f"it unpacks to more than {LARGEST / 1e9:,.0f} GB or {untrusted.MEMBERS:,} files",
            hint="the archive is damaged or malicious: do not use it",
        )


def write_tar(tree: Path, out: IO[bytes] | io.RawIOBase) -> None:
    """Write a tree as a plain tar, uncompressed: the same bytes for the same tree."""
    # One format, named: the default may change, and with it the bytes.
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path in _walk(tree):
            info = tarfile.TarInfo(path.relative_to(tree).as_posix())
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(info)
            elif path.is_dir():
                info.type, info.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(info)
            else:
                stat = path.stat()
                info.size, info.mode = stat.st_size, 0o755 if stat.st_mode & 0o100 else 0o644
                with path.open("rb") as stream:
                    archive.addfile(info, stream)


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
