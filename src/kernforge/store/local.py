# SPDX-License-Identifier: Apache-2.0
"""The content-addressed store: trees and downloads under one directory, shared by all processes.

A tree appears under its key by one rename, whole, and never changes after. Two processes that
want the same tree at the same time: one makes it, the other waits and uses it. A process that is
killed releases its locks; what it leaves is removed by the next that writes there. Beside the trees stands a mark
for each, whose time is that of its last use; ``eviction`` goes by it.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from typing import TYPE_CHECKING

from kernforge.errors import StorageError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernforge.store.remote import SharedStore

_STALE_AFTER_S = 24 * 3600


class Store:
    """A store in a directory.

    Args:
        root: the directory; made on first use.
        shared: where trees are looked for that are not here, and put after they were made.

    Attributes:
        accepts: whether a tree that came from the second level may be used, by its kind and path;
            one that may not be used is made here, and replaces the other there.
        refused: keys of those that were not.
    """

    def __init__(self, root: Path, shared: SharedStore | None = None) -> None:
        self.root, self.shared = root, shared
        self.made: set[str] = set()
        self.fetched: set[str] = set()
        self.refused: set[str] = set()
        self.accepts: Callable[[str, Path], bool] = lambda _kind, _tree: True

    def path(self, kind: str, key: str) -> Path:
        """Where the tree with this key is, or would be."""
        return self.root / kind / key[:2] / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the tree is there."""
        return self.path(kind, key).is_dir()

    def use(self, kind: str, key: str) -> Path | None:
        """The tree, marked as used now, if it is here."""
        final = self.path(kind, key)
        # Shared by readers, exclusive for an eviction: a tree that was found stays.
        try:
            with files.gate(self.gate, alone=False):
                if not final.is_dir():
                    return None
                files.touch(self.mark(kind, key))
        except StorageError:  # a store that we may only read
            return final if final.is_dir() else None
        return final

    def tree(
        self, kind: str, key: str, fill: Callable[[Path], None], *, shared: bool = True
    ) -> Path:
        """Return the tree with this key, made by ``fill`` if it is not there yet.

        Args:
            kind: of the tree, as ``"toolchains"``.
            key: the tree's key, from ``digest.key``.
            fill: writes the content into the empty directory that it is given; when it raises,
                nothing is stored.
            shared: whether the second level is read and written.
        """
        final = self.path(kind, key)
        if self.use(kind, key):
            return final
        second = self.shared if shared else None
        with files.locked(self.root / "locks" / f"{kind}-{key}"):
            if self.use(kind, key):
                return final
            if second and self._fetch(second, kind, key):
                self.fetched.add(key)
                return final
            with files.staging(final.parent) as staged:
                fill(staged)
                self._publish(staged, kind, key)
            self.made.add(key)
        if second:
            second.push(kind, key, final)
        return final

    def pull(self, kind: str, key: str) -> bool:
        """Whether the tree is here, brought from the second level if need be; never makes it."""
        if self.use(kind, key):
            return True
        if self.shared is None:
            return False
        with files.locked(self.root / "locks" / f"{kind}-{key}"):
            if not self.has(kind, key) and self._fetch(self.shared, kind, key):
                self.fetched.add(key)
        return self.use(kind, key) is not None

    def forget(self, kind: str, key: str) -> None:
        """Remove a tree as a whole: a process that is killed meanwhile leaves no half of it."""
        final = self.path(kind, key)
        with files.staging(final.parent) as grave, files.gate(self.gate, alone=True):
            if final.is_dir():
                files.rename(final, grave / "gone")

    def _fetch(self, second: SharedStore, kind: str, key: str) -> bool:
        final = self.path(kind, key)
        with files.staging(final.parent) as staged:
            if not second.fetch(kind, key, staged):
                return False
            if not self.accepts(kind, staged):
                self.refused.add(key)
                return False
            self._publish(staged, kind, key)
        return True

    def _publish(self, staged: Path, kind: str, key: str) -> None:
        files.touch(self.mark(kind, key))  # first, so that it is young from the beginning
        files.publish_tree(staged, self.path(kind, key))

    def mark(self, kind: str, key: str) -> Path:
        """The file whose time says when a tree was last used."""
        return self.root / "used" / f"{kind}-{key}"

    # -- its users -------------------------------------------------------------------------

    @property
    def gate(self) -> Path:
        """The lock that is held for a moment: shared to find a tree, alone to take one away."""
        return self.root / "locks" / "gate"

    @contextlib.contextmanager
    def lease(self) -> Iterator[None]:
        """While this lasts, what this process finds or makes is not evicted.

        The operating system ends it when the process dies, however it dies.
        """
        self.leased_since()  # removes what killed processes left
        path = self.root / "leases" / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
        with files.gate(path, alone=True):
            try:
                yield
            finally:
                files.remove_tree(path)

    def leased_since(self) -> float:
        """When the oldest lease that still holds was taken; infinity without one."""
        oldest = float("inf")
        for path in (self.root / "leases").glob("*"):
            with contextlib.suppress(FileNotFoundError):
                taken = path.stat().st_mtime
                with files.gate(path, alone=True, wait=False) as free:
                    if not free:
                        oldest = min(oldest, taken)
                    else:
                        files.remove_tree(path)
        return oldest

    def sweep(self, directory: Path, pattern: str) -> None:
        """Remove what killed processes left in a directory long ago."""
        horizon = time.time() - _STALE_AFTER_S
        for path in directory.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < horizon:
                    files.remove_tree(path)
