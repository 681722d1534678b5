# SPDX-License-Identifier: Apache-2.0
"""Open wheels of the user's indexes: large ones by ranges, the others whole and resumable."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlsplit

from kernforge.errors import IntegrityError
from kernforge.system import files
from kernforge.toolchain.index.remote_zip import LocalWheel, RangesUnsupportedError, RemoteWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernforge.toolchain.index.http import Transport
    from kernforge.toolchain.index.index import Index
    from kernforge.toolchain.index.remote_zip import Archive


class Progress(Protocol):
    """Told what is being fetched and how many bytes came."""

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Begin something of this size; returns what to call with each number of bytes."""
        ...

    def note(self, text: str) -> None:
        """Say something once."""
        ...


class Wheels:
    """Wheels by file name and hash.

    Args:
        index: makes the connection to the user's indexes; called at the first use only, so that
            a warm store needs no network.
        downloads: where unfinished downloads wait for the next attempt.
    """

    def __init__(self, index: Callable[[], Index], downloads: Path, progress: Progress) -> None:
        self._connect, self._downloads, self.progress = index, downloads, progress
        self._parts: dict[str, Archive] = {}
        self._index: Index | None = None

    @property
    def index(self) -> Index:
        """The user's indexes."""
        self._index = self._index or self._connect()
        return self._index

    @property
    def received(self) -> int:
        """Bytes that came over the network so far."""
        return self._index.transport.received if self._index else 0

    def parts(self, file: str, sha256: str) -> Archive:
        """Open a wheel of which a few members are wanted, by ranges where the server can.

        Its members are not verified here: the caller does that against the RECORD.
        """
        if file not in self._parts:
            self._parts[file] = self._open_parts(file, sha256)
        return self._parts[file]

    def whole(self, file: str, sha256: str) -> Archive:
        """Open a wheel after its hash was found to be this one; empty accepts any.

        An interrupted download goes on where it stopped. The file is removed from the disk as
        soon as it is open: what counts is what is unpacked from it.

        Raises:
            IntegrityError: the bytes are not what the hash promises.
            ToolchainError: no index lists it.
            NetworkError: the index cannot be reached.
        """
        url = self.index.find(file, sha256).url
        if url.startswith("file:"):
            path = Path(unquote(urlsplit(url).path))
            verify(path, file, sha256)
            return LocalWheel(str(path))
        part = self._downloads / f"{sha256 or 'any'}-{file}.part"
        with files.locked(part.with_suffix(".lock")):
            download(self.index.transport, url, part, self.progress, file, sha256=sha256)
            try:
                return LocalWheel(str(part))
            finally:
                files.remove_tree(part)

    def _open_parts(self, file: str, sha256: str) -> Archive:
        url = self.index.find(file, sha256).url
        if url.startswith("file:"):
            return self.whole(file, sha256)
        advance = self.progress.fetching(f"parts of {file}", None)
        try:
            return RemoteWheel(self.index.transport, url, advance)
        except RangesUnsupportedError:
            self.progress.note(f"the index cannot send parts of {file}: fetching the whole wheel")
            return self.whole(file, sha256)


def download(
    transport: Transport, url: str, part: Path, progress: Progress, name: str, *, sha256: str
) -> None:
    """Write a file to ``part``; an interrupted download goes on where it stopped.

    When what an earlier attempt left turns out to be damaged, the file is fetched once more, whole.

    Args:
        sha256: that the file must have; empty accepts any.

    Raises:
        IntegrityError: the bytes are not what the hash promises; nothing stays.
        NetworkError: the address cannot be reached.
    """
    continued = part.is_file()
    try:
        _download(transport, url, part, progress, name)
        verify(part, name, sha256)
    except IntegrityError:
        files.remove_tree(part)
        if not continued:
            raise
        progress.note(f"what was there of {name} was damaged: fetching it from the beginning")
        download(transport, url, part, progress, name, sha256=sha256)


def _download(transport: Transport, url: str, part: Path, progress: Progress, name: str) -> None:
    have = part.stat().st_size if part.is_file() else 0
    body = transport.body(url, start=have)
    goes_on = body.ranged and body.start == have
    advance = progress.fetching(name, body.total)
    advance(have if goes_on else 0)
    files.write_stream(part, body.chunks, append=goes_on, advance=advance)


def verify(path: Path, file: str, sha256: str) -> None:
    """Compare a file with its hash; empty accepts any.

    Raises:
        IntegrityError: it has another.
    """
    if sha256 and (actual := files.sha256_file(path)) != sha256:
        raise IntegrityError(
            f"{file} has sha256 {actual}, {sha256} was promised",
            hint="the download is damaged or was tampered with; nothing was stored. "
            "Run the command again, or use another address of it",
        )
