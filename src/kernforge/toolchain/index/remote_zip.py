# SPDX-License-Identifier: Apache-2.0
"""Read a few members of a large remote wheel by HTTP range requests, and verify each of them.

A zip archive ends with its central directory, which says where each member is. So: one request
for the end, one for each run of wanted members (runs less than 256 KiB apart are read as one), and
``zipfile`` over memory of which only these bytes are used. Each file is checked against the wheel's
own RECORD, whose hash the caller may pin. Measured on torch's wheels: 10 to 11.5 MB in 9 requests
instead of 530 to 915 MB.
"""

from __future__ import annotations

import base64
import bisect
import csv
import hashlib
import io
import mmap
import zipfile
from typing import IO, TYPE_CHECKING, cast

from kernforge.errors import IntegrityError, NetworkError
from kernforge.system import untrusted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from kernforge.toolchain.index.http import Transport

_TAIL = 2 << 20
# How much more of the end is read where the central directory is longer than that.
_MORE = 32
_GAP = 256 << 10


class RangesUnsupportedError(NetworkError):
    """The server sends whole files only."""


class LocalWheel:
    """A wheel on this machine."""

    def __init__(self, source: IO[bytes] | str) -> None:
        self.name = source if isinstance(source, str) else "the wheel"
        with _reading(self.name):
            self._zip = zipfile.ZipFile(source)

    def names(self) -> list[str]:
        """Return the members' names in archive order."""
        return self._zip.namelist()

    def fetch(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each wanted member with its bytes."""
        for info in self._infos(names):
            yield info.filename, self._read(info)

    def record(self) -> bytes:
        """Content of the wheel's RECORD."""
        for name in self.names():
            if name.endswith(".dist-info/RECORD") and name.count("/") == 1:
                ((_, content),) = self.fetch([name])
                return content
        raise IntegrityError(f"{self.name} has no RECORD: its files cannot be verified")

    def verified(self, names: Iterable[str], sha256: str) -> Iterator[tuple[str, bytes]]:
        """Yield each wanted member, whose bytes are those that the RECORD promises."""
        record = self.record()
        if (actual := hashlib.sha256(record).hexdigest()) != sha256:
            raise IntegrityError(
                f"{self.name}: its RECORD has sha256 {actual}, the lock says {sha256}",
                hint="the index serves another file under this name; nothing was stored",
            )
        hashes = _record_hashes(record)
        for name, data in self.fetch(names):
            if hashes.get(name) != hashlib.sha256(data).hexdigest():
                raise IntegrityError(
                    f"{self.name}: {name} is not what the wheel's RECORD promises",
                    hint="the download is damaged or was tampered with; nothing was stored. "
                    "Run the command again, or use another index",
                )
            yield name, data

    def _infos(self, names: Iterable[str]) -> list[zipfile.ZipInfo]:
        with _reading(self.name):
            return [self._zip.getinfo(name) for name in names]

    def _read(self, info: zipfile.ZipInfo) -> bytes:
        with _reading(f"{self.name}: {info.filename}"):
            return self._zip.read(info)


class RemoteWheel(LocalWheel):
    """A wheel read by ranges; ``progress`` gets the number of bytes of each answer."""

    def __init__(
        self, transport: Transport, url: str, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        self._transport, self._url, self._progress = transport, url, progress
        self.name = url.partition("#")[0].rpartition("/")[2]
        with _reading(self.name):
            try:
                self._memory, self._zip = self._open(_TAIL)
            except zipfile.BadZipFile:  # perhaps the central directory is longer
                self._memory, self._zip = self._open(_TAIL * _MORE)

    def fetch(self, names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        """Yield each wanted member with its bytes, a run of neighbours at a time."""
        wanted = self._infos(names)
        wanted.sort(key=lambda info: info.header_offset)
        ends = sorted([i.header_offset for i in self._zip.infolist()] + [self._zip.start_dir])
        for run in _runs(wanted):
            start = run[0].header_offset
            # A member ends where the next one begins: its local header's length is not known yet.
            after = bisect.bisect_right(ends, run[-1].header_offset)
            stop = ends[after] if after < len(ends) else start
            if not 0 <= stop - start <= sum(info.compress_size + _GAP for info in run):
                raise IntegrityError(
                    f"{self.name}: {run[0].filename} does not lie where its directory says",
                    hint="the wheel is damaged or malicious; nothing of it was stored",
                )
            self._load(start, stop)
            for info in run:
                yield info.filename, self._read(info)

    def _open(self, tail: int) -> tuple[_Memory, zipfile.ZipFile]:
        """Memory of the archive's size with its last bytes; the kernel gives what is written."""
        with self._transport.body(self._url, start=-tail) as body:
            if not body.ranged or not body.total or body.total > untrusted.FILE:
                raise RangesUnsupportedError(f"the server sends {self.name} only as a whole")
            memory = _Memory(-1, body.total)
            self._write(memory, body.start, body.read())
        return memory, zipfile.ZipFile(cast("IO[bytes]", memory))

    def _load(self, start: int, stop: int) -> None:
        with self._transport.body(self._url, start=start, stop=stop) as body:
            data = body.read()
        if not body.ranged or body.start != start or len(data) != stop - start:
            raise NetworkError(
                f"{self.name}: bytes {start} to {stop} were asked for, {len(data)} came",
                hint="the connection broke off or a proxy interferes; run the command again",
            )
        self._write(self._memory, start, data)

    def _write(self, memory: _Memory, start: int, data: bytes) -> None:
        self._progress(len(data))
        with _reading(self.name):  # a server may say that it sends what lies outside
            memory[start : start + len(data)] = data


class _Memory(mmap.mmap):
    def seekable(self) -> bool:
        return True


def _reading(source: str) -> AbstractContextManager[None]:
    return untrusted.foreign_parser(
        lambda reason: IntegrityError(
            f"{source} is not a wheel that can be read: {reason}",
            hint="it is damaged or malicious; nothing of it was stored",
        )
    )


def _runs(infos: list[zipfile.ZipInfo]) -> Iterator[list[zipfile.ZipInfo]]:
    """Group members that are so near each other that one request is cheaper than two."""
    run: list[zipfile.ZipInfo] = []
    for info in infos:
        if run and info.header_offset - (run[-1].header_offset + run[-1].compress_size) > _GAP:
            yield run
            run = []
        run.append(info)
    if run:
        yield run


def _record_hashes(record: bytes) -> dict[str, str]:
    """Hex SHA-256 of each file that a RECORD names (PyPA: recording installed projects)."""
    with _reading("RECORD"):
        rows = csv.reader(io.StringIO(record.decode()))
        return {
            row[0]: base64.urlsafe_b64decode(f"{row[1].removeprefix('sha256=')}===").hex()
            for row in rows
            if len(row) > 1 and row[1].startswith("sha256=")
        }
