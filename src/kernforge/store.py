# SPDX-License-Identifier: Apache-2.0
"""The content-addressed store: trees and downloads under one directory, shared by all processes.

A tree appears under its key by one rename, whole, and never changes after. Two processes that
want the same tree at the same time: one makes it, the other waits and uses it. A process that is
killed releases its lock and leaves a ``tmp-*`` directory, nothing else.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from kernforge import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_STALE_AFTER_S = 24 * 3600


class Store:
    """A store in a directory.

    Args:
        root: the directory; made on first use.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, kind: str, key: str) -> Path:
        """Where the tree with this key lies, or would."""
        return self.root / kind / key[:2] / key

    def has(self, kind: str, key: str) -> bool:
        """Whether the tree is there."""
        return self.path(kind, key).is_dir()

    def tree(self, kind: str, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the tree with this key, made by ``fill`` if it is not there yet.

        Args:
            kind: a shelf of the store, as ``"toolchains"``.
            key: the tree's key, from ``digest.key``.
            fill: writes the content into the empty directory that it is given; when it raises,
                nothing is stored.
        """
        final = self.path(kind, key)
        if final.is_dir():
            return final
        with files.locked(self.root / "locks" / f"{kind}-{key}"):
            if not final.is_dir():
                self.sweep(final.parent, "tmp-*")
                with files.staging(final.parent) as staged:
                    fill(staged)
                    files.publish_tree(staged, final)
        return final

    def sweep(self, directory: Path, pattern: str) -> None:
        """Remove what killed processes left in a directory long ago."""
        horizon = time.time() - _STALE_AFTER_S
        for path in directory.glob(pattern):
            if path.stat().st_mtime < horizon:
                files.remove_tree(path)
