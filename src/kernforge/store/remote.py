# SPDX-License-Identifier: Apache-2.0
"""The store's second level: results and toolchains at a URL that several machines share.

Any file system that fsspec knows will do. One object holds one tree, under its key, and is verified
when it comes in. Nothing that happens here can break a build: what cannot be read is made, what
cannot be written is not, and one note says so.
"""

from __future__ import annotations

import uuid
from typing import IO, TYPE_CHECKING, Any

from kernforge.errors import IntegrityError, StorageError, UsageError
from kernforge.store import tree_archive

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LAYOUT = "v1"


class SharedStore:
    """Trees by key, at a URL.

    Args:
        url: as fsspec spells it: ``file:///mnt/farm``, ``s3://bucket/prefix``, ``memory://x``.
        note: called with what does not work.

    Raises:
        UsageError: fsspec does not know such URLs, or lacks the package that would.
    """

    def __init__(self, url: str, note: Callable[[str], None]) -> None:
        import fsspec  # noqa: PLC0415 - only a build that shares its results needs it

        self.url, self._note = url, note
        self._can_read = self._can_write = True
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"{url!r} cannot be a shared store: {error}",
                hint="name a URL such as file:///mnt/farm or s3://bucket/prefix, and install "
                "the fsspec package for it (s3fs, gcsfs, adlfs ...)",
            ) from error
        self._fs, root = found
        self._root = root.rstrip("/")

    def has(self, kind: str, key: str) -> bool:
        """Whether a tree is there; False when that cannot be known."""
        if not self._can_read:
            return False
        try:
            return bool(self._fs.exists(self._path(kind, key)))
        except Exception as error:  # noqa: BLE001 - a plugin raises what it likes
            self._give_up_reading(error)
            return False

    def fetch(self, kind: str, key: str, into: Path) -> bool:
        """Bring a tree into an empty directory.

        Returns:
            Whether it came. When it did not, the directory may hold parts of it, and another one
            must be used.
        """
        if not self._can_read:
            return False
        try:
            with self._fs.open(self._path(kind, key), "rb") as stream:
                tree_archive.unpack(stream, into)
        except FileNotFoundError:
            return False
        except StorageError:
            raise  # our own disk, not theirs
        except IntegrityError as error:
            self._note(f"shared store: {kind}/{key[:12]} is not used: {error.message}")
            return False
        except Exception as error:  # noqa: BLE001 - a plugin raises what it likes
            self._give_up_reading(error)
            return False
        return True

    def push(self, kind: str, key: str, tree: Path) -> bool:
        """Store a tree, in the place of a damaged one if there is one.

        Returns:
            Whether it is there now.
        """
        if not self._can_write:
            return False
        try:
            self._write(self._path(kind, key), tree)
        except Exception as error:  # noqa: BLE001 - a plugin raises what it likes
            self._can_write = False
            self._note(
                f"shared store {self.url}: nothing is written to it any more: {_words(error)}"
            )
            return False
        return True

    def _write(self, final: str, tree: Path) -> None:
        # An object store shows an object when it is closed; a directory shows it growing.
        local = "file" in self._fs.protocol
        path = f"{final}.tmp-{uuid.uuid4().hex}" if local else final
        with self._open_new(path) as stream:
            tree_archive.pack(tree, stream)
        if local:
            self._fs.mv(path, final)

    def _open_new(self, path: str) -> IO[bytes]:
        try:
            stream: IO[bytes] = self._fs.open(path, "wb")
        except FileNotFoundError:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            stream = self._fs.open(path, "wb")
        return stream

    def _path(self, kind: str, key: str) -> str:
        return f"{self._root}/{_LAYOUT}/{kind}/{key[:2]}/{key}.tree"

    def _give_up_reading(self, error: Exception) -> None:
        self._can_read = False
        self._note(f"shared store {self.url}: nothing is read from it any more: {_words(error)}")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}"
