# SPDX-License-Identifier: Apache-2.0
"""Keep the store within its size: the trees that were not used for longest go first.

A build removes only what was not used for a day: no action runs for that long, so that none loses
what it reads. A tree is removed by one rename, so no process meets half of one. Only what has the
exact name of an entry of ours is ever removed, and nothing behind a link.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.machine import parse_size

DEFAULT_SIZE = 30 * 10**9
STORE_KINDS = ("toolchains", "actions", "findings")
# Also in the store: directories of failed actions, measurements.
_OTHERS = ("work", "measured")
_DAY_S = 24 * 3600
_KEY = re.compile("[0-9a-f]{64}")
_LOCK = f"(?:{'|'.join(STORE_KINDS)})-{_KEY.pattern}"
# To look at all of a large store takes seconds: too long after each edit of an inner loop.
_LOOKED_AT_EVERY_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreEntry:
    """A tree of the store.

    Attributes:
        size: bytes on the disk.
        used: when it was last used, in seconds since the epoch.
    """

    kind: str
    path: Path
    size: int
    used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KindUsage:
    """A part of the store.

    Attributes:
        oldest: when its least recently used tree was used; None where nothing is evicted.
    """

    name: str
    entries: int
    size: int
    oldest: float | None


def limit(environment: Environment) -> int:
    """Bytes that the store may take: ``KERNFORGE_STORE_SIZE``, else 30 GB."""
    text = environment.kernforge_store_size
    if not text:
        return DEFAULT_SIZE
    try:
        return parse_size(text)
    except ValueError as error:
        raise UsageError(
            f"KERNFORGE_STORE_SIZE: {error}",
            hint=f"set it to a size with a unit, or unset it: the store then takes "
            f"{DEFAULT_SIZE // 10**9}GB",
        ) from error


def entries(store: Store) -> Iterator[StoreEntry]:
    """Every tree of the store; what is behind a symbolic link belongs to another store."""
    for kind in STORE_KINDS:
        if (store.root / kind).is_symlink():
            continue
        for path in (store.root / kind).glob("??/*"):
            if _is_ours(path) and path.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    used = _used(store, kind, path)
                    yield StoreEntry(kind=kind, path=path, size=_size(store, path), used=used)


def _is_ours(path: Path) -> bool:
    named = _KEY.fullmatch(path.name) and path.parent.name == path.name[:2]
    return bool(named) and not path.is_symlink() and not path.parent.is_symlink()


def survey(store: Store) -> tuple[KindUsage, ...]:
    """What the store holds, by kind."""
    trees = list(entries(store))
    kinds = []
    for kind in STORE_KINDS:
        here = [entry for entry in trees if entry.kind == kind]
        size, oldest = sum(e.size for e in here), min((e.used for e in here), default=None)
        kinds.append(KindUsage(name=kind, entries=len(here), size=size, oldest=oldest))
    for name in _OTHERS:
        count = sum(1 for path in (store.root / name).rglob("*") if path.is_file())
        size = files.tree_bytes(store.root / name)
        kinds.append(KindUsage(name=name, entries=count, size=size, oldest=None))
    return tuple(kinds)


def trim(store: Store, size: int) -> list[StoreEntry]:
    """Remove trees until the others fit into ``size`` bytes, even those that were just used.

    Those that were not used for longest go first. Returns what was removed.
    """
    return _fit(store, size, before=float("inf"))


def keep(store: Store, size: int) -> None:
    """Trim a store of what was not used for a day, unless that was done a short time ago."""
    mark = store.root / "trimmed"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - mark.stat().st_mtime < _LOOKED_AT_EVERY_S:
            return
    files.touch(mark)
    _fit(store, size, before=time.time() - _DAY_S)


def _fit(store: Store, size: int, *, before: float) -> list[StoreEntry]:
    """Remove the least recently used trees, of those that were last used before a moment."""
    least_recent_first = sorted(entries(store), key=lambda entry: entry.used)
    excess = sum(entry.size for entry in least_recent_first) - size
    chosen = []
    for entry in least_recent_first:
        if excess <= 0 or entry.used >= before:
            break
        chosen.append(entry)
        excess -= entry.size
    return _remove(store, chosen)


def _remove(store: Store, chosen: list[StoreEntry]) -> list[StoreEntry]:
    for entry in chosen:
        store.forget(entry.kind, entry.path.name)
        files.remove_tree(_size_file(store, entry.path))
        files.remove_tree(store.mark(entry.kind, entry.path.name))
    files.sweep(store.root / "locks", _LOCK)
    return chosen


def _used(store: Store, kind: str, path: Path) -> float:
    try:
        return store.mark(kind, path.name).stat().st_mtime
    except FileNotFoundError:
        # Its mtime is a constant, so that results have the same bytes.
        return path.stat().st_ctime


def _size(store: Store, path: Path) -> int:
    """Bytes of a tree, counted once: a tree never changes, and torch's headers are 9,000 files."""
    note = _size_file(store, path)
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(note.read_text())
    size = files.tree_bytes(path)
    files.write_atomic(note, str(size), durable=False)
    return size


def _size_file(store: Store, path: Path) -> Path:
    return store.root / "sizes" / f"{path.parent.parent.name}-{path.name}"
