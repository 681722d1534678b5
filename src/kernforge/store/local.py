# SPDX-License-Identifier: Apache-2.0
"""The content-addressed store: trees and downloads under one directory, shared by all processes.

A tree appears under its key by one rename, whole, and never changes after. Two processes that
want the same tree at the same time: one makes it, the other waits and uses it. A process that is
killed releases its locks; what it leaves is removed by the next that writes there. Beside the trees
stands a mark for each, whose time is that of its last use; ``eviction`` goes by it; and a record of
what it held when it was made. Whoever uses a tree gets it as it was made: one that differs from its
record is taken away, and made again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import uuid
from typing import TYPE_CHECKING

from kernforge.errors import StorageError
from kernforge.store import records
from kernforge.store.records import NoRecordError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kernforge.store.remote import SharedStore

_STALE_AFTER_S = 24 * 3600
# What this process has compared with its record is not compared again so soon.
_BELIEVED_S = 60.0
# Of a tree with more files, a crash that emptied some is seen when it is next used.
_FLUSHED_FILES = 64
_log = logging.getLogger("kernforge")


class Store:
    """A store in a directory.

    Args:
        root: the directory; made on first use.
        shared: where trees are looked for that are not here, and put after they were made.

    Attributes:
        accepts: whether a tree that came from the second level may be used, by its kind and path;
            one that may not be used is made here, and replaces the other there.
        refused: keys of those that were not.
        note: called with a line for each tree that was damaged and is made again.
    """

    def __init__(self, root: Path, shared: SharedStore | None = None) -> None:
        self.root, self.shared = root, shared
        self.made: set[str] = set()
        self.fetched: set[str] = set()
        self.refused: set[str] = set()
        self.accepts: Callable[[str, Path], bool] = lambda _kind, _tree: True
        self.note: Callable[[str], None] = _log.warning
        self._believed: dict[tuple[str, str, bool], float] = {}

    def path(self, kind: str, key: str) -> Path:
        """Where the tree with this key is, or would be."""
        return self.root / kind / key[:2] / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the tree is there."""
        return self.path(kind, key).is_dir()

    def use(self, kind: str, key: str, *, whole: bool = True) -> Path | None:
        """The tree, marked as used now, if it is here and as it was made.

        Args:
            whole: whether all of a large tree is read; see ``records``.
        """
        final = self._find(kind, key)
        if final is None or self._is_sound(kind, key, whole=whole):
            return final
        try:
            with files.locked(self._lock(kind, key)):
                return final if self._discard(kind, key, whole=whole) else None
        except StorageError:  # a store that we may only read
            return None

    def mark_used(self, kind: str, key: str) -> bool:
        """Whether the tree is here, which is marked as used now; what is in it is not looked at."""
        return self._find(kind, key) is not None

    def _find(self, kind: str, key: str) -> Path | None:
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
        self,
        kind: str,
        key: str,
        fill: Callable[[Path], None],
        *,
        shared: bool = True,
        whole: bool = True,
    ) -> Path:
        """Return the tree with this key, made by ``fill`` if it is not there yet.

        Args:
            kind: of the tree, as ``"toolchains"``.
            key: the tree's key, from ``digest.key``.
            fill: writes the content into the empty directory that it is given; when it raises,
                nothing is stored.
            shared: whether the second level is read and written.
            whole: as for ``use``.
        """
        final = self.path(kind, key)
        if self.use(kind, key, whole=whole):
            return final
        second = self.shared if shared else None
        with files.locked(self._lock(kind, key)):
            if self._discard(kind, key, whole=whole):
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
        return self.use(kind, key) is not None or self.bring(kind, key)

    def bring(self, kind: str, key: str) -> bool:
        """Whether the tree is here or was brought; what is in one that is here is not looked at."""
        if self.mark_used(kind, key):
            return True
        if self.shared is None:
            return False
        with files.locked(self._lock(kind, key)):
            if not self.has(kind, key) and self._fetch(self.shared, kind, key):
                self.fetched.add(key)
        return self.mark_used(kind, key)

    def forget(self, kind: str, key: str) -> None:
        """Remove a tree as a whole: a process that is killed meanwhile leaves no half of it."""
        final = self.path(kind, key)
        with files.staging(final.parent) as grave, files.gate(self.gate, alone=True):
            self.take(kind, key, grave)

    def take(self, kind: str, key: str, grave: Path) -> None:
        """Move a tree into another directory, and remove what stands beside it.

        The caller holds ``gate`` alone.
        """
        final = self.path(kind, key)
        for state in (False, True):
            self._believed.pop((kind, key, state), None)
        if os.path.lexists(final):
            files.rename(final, grave / "gone")
        for beside in (records.path(final), self._seen(kind, key)):
            files.remove_tree(beside)

    # -- as it was made --------------------------------------------------------------------

    def damage(self, kind: str, key: str) -> tuple[str, ...]:
        """How a tree differs from what it was when it was made; every file is read.

        Raises:
            NoRecordError: it was made by a kernforge that kept no records.
        """
        final = self.path(kind, key)
        try:
            record = records.read(records.path(final))
        except NoRecordError:
            if self._is_older(kind, key):
                raise
            return ("its record is missing",)
        except ValueError as error:
            return (str(error),)
        return records.differences(final, record)

    def discard_damaged(self, kind: str, key: str) -> None:
        """Remove a tree if it differs from what it was when it was made; without a note."""
        with files.locked(self._lock(kind, key)), contextlib.suppress(NoRecordError):
            if self.damage(kind, key):
                self.forget(kind, key)

    def _is_sound(self, kind: str, key: str, *, whole: bool) -> bool:
        """Whether a tree is as it was made; one without a record gets it if it is older than these."""
        known = max(self._believed.get((kind, key, state), 0.0) for state in {whole, True})
        if known and time.monotonic() - known < _BELIEVED_S:
            return True
        final = self.path(kind, key)
        try:
            sound = records.is_sound(final, self._seen(kind, key), whole=whole)
        except NoRecordError:
            if sound := self._is_older(kind, key):
                with contextlib.suppress(StorageError):  # a store that we may only read
                    records.write(records.read_tree(final), records.path(final))
        if sound:
            self._believed[kind, key, whole] = time.monotonic()
        return sound

    def _discard(self, kind: str, key: str, *, whole: bool) -> bool:
        """Whether a tree is here and as it was made; one that is not is removed, with a note.

        The caller holds the lock of the tree: another process may have made it again meanwhile.
        """
        if self._find(kind, key) is None:
            return False
        if self._is_sound(kind, key, whole=whole):
            return True
        problem = records.sentence(self.damage(kind, key))
        if not self.has(kind, key):  # an eviction took it away meanwhile
            return False
        self.forget(kind, key)
        self.note(f"the store's {kind}/{key[:12]} was damaged, and is made again: {problem}")
        return False

    def _is_older(self, kind: str, key: str) -> bool:
        """Whether a tree was here before this store began to keep records."""
        began = self.root / "recorded"
        try:
            if not began.exists():
                trees = (path for path in self.root.glob("*/??/*") if len(path.name) == len(key))
                older = [path for path in trees if not records.path(path).exists()]
                names = sorted(f"{path.parent.parent.name}/{path.name}" for path in older)
                files.write_atomic(began, "\n".join(names))
            return f"{kind}/{key}" in began.read_text(errors="replace").split("\n")
        except (OSError, StorageError):  # a store that we may only read, and that has no records
            return True

    def _seen(self, kind: str, key: str) -> Path:
        return self.root / "seen" / f"{kind}-{key}"

    def _lock(self, kind: str, key: str) -> Path:
        return self.root / "locks" / f"{kind}-{key}"

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
        final = self.path(kind, key)
        record = records.read_tree(staged)
        if len(record.files) <= _FLUSHED_FILES:
            files.flush(staged)
        self._is_older(kind, key)  # from now on, each tree has a record
        if final.exists() and not final.is_dir():  # damage may be of any kind
            files.remove_tree(final)
        records.write(record, records.path(final))
        files.publish_tree(staged, final)
        self._believed[kind, key, True] = time.monotonic()

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
                with files.gate(path, alone=True, wait_s=0) as free:
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
