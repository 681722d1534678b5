# SPDX-License-Identifier: Apache-2.0
"""Open wheels of the user's indexes: large ones by ranges, the others whole."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from kernforge.errors import IntegrityError
from kernforge.system import files
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.remote_zip import LocalWheel, RangesUnsupportedError, RemoteWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernforge.system.progress import Progress


class Wheels:
    """Wheels by file name and hash.

    Args:
        index: makes the connection to the user's indexes; called at the first use only, so that
            a warm store needs no network.
        downloads: directory for wheels that are being read.
    """

    def __init__(self, index: Callable[[], Index], downloads: Path, progress: Progress) -> None:
        self._connect, self._downloads, self.progress = index, downloads, progress
        self._parts: dict[str, LocalWheel] = {}

    @classmethod
    def of(cls, env: Mapping[str, str], downloads: Path, progress: Progress) -> Self:
        """Wheels of the indexes that pip's configuration names in this environment."""
        return cls(functools.partial(Index.from_environment, env), downloads, progress)

    @functools.cached_property
    def index(self) -> Index:
        """The user's indexes."""
        return self._connect()

    @property
    def received(self) -> int:
        """Bytes that came over the network so far."""
        return self.index.transport.received if "index" in self.__dict__ else 0

    def parts(self, file: str, sha256: str) -> LocalWheel:
        """Open a wheel of which a few members are wanted, by ranges where the server can.

        Its members are not verified here: the caller does that against the RECORD.
        """
        if file not in self._parts:
            self._parts[file] = self._open_parts(file, sha256)
        return self._parts[file]

    def whole(self, file: str, sha256: str) -> LocalWheel:
        """Open a wheel after its hash was found to be this one; empty accepts any.

        The file is removed from the disk as soon as it is open: what counts is what is unpacked
        from it.

        Raises:
            IntegrityError: the bytes are not what the hash promises.
            ToolchainError: no index lists it.
            NetworkError: the index cannot be reached.
        """
        url = self.index.find(file, sha256).url
        if url.startswith("file:"):
            path = Path(unquote(urlsplit(url).path))
            _verify(path, file, sha256)
            return LocalWheel(str(path))
        with files.staging(self._downloads) as directory:
            path = directory / file
            with self.index.transport.body(url) as body:
                advance = self.progress.fetching(file, body.total)
                files.write_stream(path, body.chunks, advance)
            _verify(path, file, sha256)
            return LocalWheel(str(path))

    def _open_parts(self, file: str, sha256: str) -> LocalWheel:
        url = self.index.find(file, sha256).url
        if url.startswith("file:"):
            return self.whole(file, sha256)
        advance = self.progress.fetching(f"parts of {file}", None)
        try:
            return RemoteWheel(self.index.transport, url, advance)
        except RangesUnsupportedError:
            self.progress.note(f"the index cannot send parts of {file}: fetching the whole wheel")
            return self.whole(file, sha256)


def _verify(path: Path, file: str, sha256: str) -> None:
    if sha256 and (actual := files.sha256_file(path)) != sha256:
        raise IntegrityError(
            f"{file} has sha256 {actual}, {sha256} was promised",
            hint="the download is damaged or was tampered with; nothing was stored. "
            "Run the command again, or use another index",
        )
