# SPDX-License-Identifier: Apache-2.0
"""The store's second level: results and toolchains at a URL that several machines share.

Any file system that fsspec knows will do. One object holds one tree, under its key: a line
``kernforge-signed 1 <bytes of the signature>``, the signature, and the packed tree. The signature
is over the kind, the key and the hash of the tree, and is checked before anything is unpacked, so
that an object that was made up, changed or put under another key is not used. Nothing that happens
here can break a build: what cannot be read is made, what cannot be written is not, and one note
says so.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Protocol

from kernforge.errors import IntegrityError, StorageError, UsageError
from kernforge.store import tree_archive

_LAYOUT = "v2"
_UNFINISHED_LASTS_S = 24 * 3600
_SIGNED = b"kernforge-signed 1 "
_LONGEST_LINE, _LARGEST_SEAL = 64, 1 << 16


class Writers(Protocol):
    """Whose objects are taken, and what signs ours."""

    @property
    def writes(self) -> bool:
        """Whether this machine puts trees into the store."""
        ...

    def seal(self, message: bytes) -> bytes:
        """The signature of a message; empty where nothing is signed."""
        ...

    def check(self, message: bytes, seal: bytes) -> None:
        """Raise ``IntegrityError`` for what is not signed as it must be."""
        ...


class SharedStore:
    """Trees by key, at a URL.

    Args:
        url: as fsspec spells it: ``file:///mnt/farm``, ``s3://bucket/prefix``, ``memory://x``.
        note: called with what does not work.
        writers: whose objects are taken, and what signs ours.

    Attributes:
        good: kind and key of each tree that was brought or put there.
    """

    def __init__(self, url: str, note: Callable[[str], None], writers: Writers) -> None:
        import fsspec  # noqa: PLC0415 - only a build that shares its results needs it

        self.url, self._note, self._writers = url, note, writers
        self._can_read, self._can_write = True, writers.writes
        self.good: set[tuple[str, str]] = set()
        try:
            system_and_root: tuple[Any, str] = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"{url!r} cannot be a shared store: {error}",
                hint="name a URL such as file:///mnt/farm or s3://bucket/prefix, and install "
                "the fsspec package for it (s3fs, gcsfs, adlfs ...)",
            ) from error
        self._fs, root = system_and_root
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
                seal = _read_seal(stream)
                sha256 = tree_archive.read_hash(stream)
                self._writers.check(_message(kind, key, sha256), seal)
                tree_archive.unpack(stream, into, sha256)
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
        self.good.add((kind, key))
        return True

    def push(self, kind: str, key: str, tree: Path) -> bool:
        """Store a tree, in the place of a damaged one if there is one.

        Returns:
            Whether it is there now.
        """
        if not self._can_write:
            return False
        try:
            self._write(self._path(kind, key), tree, (kind, key))
        except Exception as error:  # noqa: BLE001 - a plugin raises what it likes
            self._can_write = False
            self._note(
                f"shared store {self.url}: nothing is written to it any more: {_words(error)}"
            )
            return False
        self.good.add((kind, key))
        return True

    def _write(self, final: str, tree: Path, entry: tuple[str, str]) -> None:
        # An object store shows an object when it is closed; a directory shows it growing.
        local = "file" in self._fs.protocol
        if local:
            self._sweep(final.rpartition("/")[0])
        path = f"{final}.tmp-{uuid.uuid4().hex}" if local else final
        with self._open_new(path) as stream:
            sha256 = tree_archive.tree_hash(tree)
            seal = self._writers.seal(_message(*entry, sha256))
            stream.write(_SIGNED + str(len(seal)).encode() + b"\n" + seal)
            tree_archive.pack(tree, stream, sha256)
        if local:
            self._fs.mv(path, final)

    def _sweep(self, directory: str) -> None:
        """Remove what writers that were killed left there long ago, on whichever machine."""
        horizon = time.time() - _UNFINISHED_LASTS_S
        with contextlib.suppress(FileNotFoundError):
            for entry in self._fs.ls(directory, detail=True):
                if ".tmp-" in entry["name"] and entry["mtime"] < horizon:
                    self._fs.rm_file(entry["name"])

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


def _message(kind: str, key: str, sha256: str) -> bytes:
    """What a signature is over; the first line is of no other document that a key signs."""
    return f"kernforge shared store 1\n{kind}\n{key}\n{sha256}\n".encode()


def _read_seal(stream: IO[bytes]) -> bytes:
    line = stream.readline(_LONGEST_LINE)
    size = line.removeprefix(_SIGNED).removesuffix(b"\n")
    if not line.startswith(_SIGNED) or not size.isdigit() or int(size) > _LARGEST_SEAL:
        raise IntegrityError("it is not an object of this version of kernforge")
    return stream.read(int(size))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}"
