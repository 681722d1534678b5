# SPDX-License-Identifier: Apache-2.0
"""The content-addressed store: trees and downloads under one directory, shared by all processes.

A tree appears under its key by one rename, whole, and never changes after. Two processes that
want the same tree at the same time: one makes it, the other waits and uses it. A process that is
killed releases its locks; what it leaves is removed by the next that writes there. Beside the trees
stands a mark for each, whose time is that of its last use; ``eviction`` goes by it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from kernforge.errors import StorageError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernforge.store.remote import SharedStore

# To flush each file of torch's headers would take longer than to flush the disk.
_FLUSHED_FILES = 64
_log = logging.getLogger("kernforge")


class Store:
    """A store in a directory.

    Args:
        shared: where trees are looked for that are not here, and put after they were made.

    Attributes:
        accepts: whether a tree that came from the second level may be used, by its kind and path;
            one that may not be used is made here, and replaces the other there.
        note: called with a line for each result that was damaged and is made again.
    """

    def __init__(self, root: Path, shared: SharedStore | None = None) -> None:
        self.root, self.shared = root, shared
        self.made: set[str] = set()
        self.fetched: set[str] = set()
        self.accepts: Callable[[str, Path], bool] = lambda _kind, _tree: True
        self.note: Callable[[str], None] = _log.warning

    def path(self, kind: str, key: str) -> Path:
        """Where the tree with this key is, or would be."""
        return self.root / kind / key[:2] / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the tree is there."""
        return self.path(kind, key).is_dir()

    def use(self, kind: str, key: str) -> Path | None:
        """The tree, marked as used now; None if it is not here."""
        final = self.path(kind, key)
        if not final.is_dir():
            return None
        with contextlib.suppress(StorageError):  # a store that we may only read
            files.touch(self.mark(kind, key))
        return final

    def tree(
        self, kind: str, key: str, fill: Callable[[Path], None], *, shared: bool = True
    ) -> Path:
        """Return the tree with this key, made by ``fill`` if it is not there yet.

        Args:
            fill: writes the content into the empty directory that it is given; when it raises,
                nothing is stored.
            shared: whether the second level is read and written.
        """
        final = self.path(kind, key)
        if self.use(kind, key):
            return final
        second = self.shared if shared else None
        with files.locked(self._lock(kind, key)):
            if self.use(kind, key):
                return final
            if second and self._fetch(second, kind, key):
                return final
            with files.staging(final.parent) as staged:
                fill(staged)
                self._publish(staged, kind, key)
            self.made.add(key)
        if second:
            second.push(kind, key, final)
        return final

    def bring(self, kind: str, key: str) -> bool:
        """Whether the tree is here, brought from the second level if need be; never makes it."""
        if self.use(kind, key):
            return True
        if self.shared is None:
            return False
        with files.locked(self._lock(kind, key)):
            return self.has(kind, key) or self._fetch(self.shared, kind, key)

    def forget(self, kind: str, key: str) -> None:
        """Remove a tree as a whole: a process that is killed meanwhile leaves no half of it."""
        final = self.path(kind, key)
        if not os.path.lexists(final):
            return
        with files.staging(final.parent) as trash, contextlib.suppress(FileNotFoundError):
            final.rename(trash / "gone")

    def mark(self, kind: str, key: str) -> Path:
        """The file whose time says when a tree was last used."""
        return self.root / "used" / f"{kind}-{key}"

    def _lock(self, kind: str, key: str) -> Path:
        return self.root / "locks" / f"{kind}-{key}"

    def _fetch(self, second: SharedStore, kind: str, key: str) -> bool:
        final = self.path(kind, key)
        with files.staging(final.parent) as staged:
            if not second.fetch(kind, key, staged):
                return False
            if not self.accepts(kind, staged):
                return False
            self._publish(staged, kind, key)
        self.fetched.add(key)
        return True

    def _publish(self, staged: Path, kind: str, key: str) -> None:
        files.touch(self.mark(kind, key))  # first, so that it is young from the beginning
        if sum(len(names) for _, _, names in os.walk(staged)) <= _FLUSHED_FILES:
            files.flush(staged)
        else:
            os.sync()
        files.publish_tree(staged, self.path(kind, key))
