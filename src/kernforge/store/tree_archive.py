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
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from kernforge import untrusted
from kernforge.errors import IntegrityError
from kernforge.system import archives

_MAGIC = b"kernforge-tree 1 "
_LINE = len(_MAGIC) + 64 + 1
_LEVEL = 1
_CHUNK = 1 << 20


class _Hashing(io.RawIOBase):
    """Hashes what is written to it and passes it on, compressed, if there is a stream for it."""

    def __init__(self, out: IO[bytes] | None = None) -> None:
        self.hash = hashlib.sha256()
        self._out, self._squeeze = out, zlib.compressobj(_LEVEL)

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a tar writes bytes alone
        self.hash.update(data)
        if self._out:
            self._out.write(self._squeeze.compress(data))
        return len(data)

    def finish(self) -> None:
        """Write what the compressor still holds."""
        if self._out:
            self._out.write(self._squeeze.flush())


def tree_hash(tree: Path) -> str:
    """Hex SHA-256 of a tree's tar, which is in the first line of a stream."""
    hashing = _Hashing()
    write_tar(tree, hashing)
    return hashing.hash.hexdigest()


def pack(tree: Path, out: IO[bytes], promised: str = "") -> None:
    """Write a tree to a stream. Its hash comes first; it is read for that unless it is given."""
    out.write(_MAGIC + (promised or tree_hash(tree)).encode() + b"\n")
    second = _Hashing(out)
    write_tar(tree, second)
    second.finish()


def unpack(stream: IO[bytes], into: Path) -> None:
    """Read a tree from a stream into an empty directory; raises what ``unpack_promised`` does."""
    unpack_promised(stream, into, read_promise(stream))


def read_promise(stream: IO[bytes]) -> str:
    """The hash in the first line of a stream.

    Raises:
        IntegrityError: it is not a packed tree.
    """
    line = stream.read(_LINE)
    if not line.startswith(_MAGIC) or len(line) != _LINE:
        raise IntegrityError("it is not a packed tree of this version of kernforge")
    return line[len(_MAGIC) : -1].decode(errors="replace")


def unpack_promised(stream: IO[bytes], into: Path, promised: str) -> None:
    """Read a tree, whose first line was read, into an empty directory.

    Raises:
        IntegrityError: the stream is cut off, damaged, of another kind, or leads out of the
            directory. The directory then holds rubbish, and the caller throws it away.
    """
    source = _Inflating(stream)
    with untrusted.foreign_parser(lambda reason: IntegrityError(f"it is damaged: {reason}")):
        archives.unpack_tar(cast("IO[bytes]", source), into, "the packed tree")
        source.drain()
    if source.hash.hexdigest() != promised:
        raise IntegrityError(f"its sha256 is {source.hash.hexdigest()}, {promised} was promised")


class _Inflating(io.RawIOBase):
    """Reads a compressed stream and hashes what comes out."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._inflate = stream, zlib.decompressobj()
        self.hash = hashlib.sha256()
        self._ready = bytearray()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while size < 0 or len(self._ready) < size:
            data = self._inflate.unconsumed_tail or self._stream.read(_CHUNK)
            if not data:
                break
            plain = self._inflate.decompress(data, _CHUNK)
            self.hash.update(plain)
            self._ready += plain
        size = len(self._ready) if size < 0 else size
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def drain(self) -> None:
        """Read to the end, so that everything is hashed."""
        while self.read(_CHUNK):
            pass
        if not self._inflate.eof:
            raise EOFError("it is cut off")


def write_tar(tree: Path, out: IO[bytes] | _Hashing) -> None:
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
