# SPDX-License-Identifier: Apache-2.0
"""Keep the store within its size: the trees that were not used for longest go first.

What a running build uses stays: a build holds a lease, and whatever was found or made since the
oldest lease was taken is left alone. A tree is removed by one rename, so no process meets half of one.

The environments of ``kernforge shell --with-torch`` lie beside the store. They are listed and removed
as its trees are when a user asks for it, but never by a build: they do not count into its size.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.system import files
from kernforge.system.machine import parse_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from kernforge.store.local import Store
    from kernforge.system.environment import Environment

DEFAULT_SIZE = 30 * 10**9
STORE_KINDS = ("toolchains", "actions", "findings")
ENVIRONMENTS = "environments"
"""Directory beside the store with Python environments."""
ENVIRONMENT_USED = "kernforge-torch"
"""The file that an environment has when all is installed; its time says when it was last used."""
# Also in the store: directories of failed actions, downloads to be continued, measurements.
_OTHERS = ("work", "downloads", "measured")
_DAY_S = 24 * 3600
_KEY_LENGTH = 64


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
        size: their bytes.
        oldest: when its least recently used tree was used; None where nothing is evicted.
    """

    name: str
    entries: int
    size: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """What an eviction did.

    Attributes:
        size: their bytes.
        kept: trees that would have gone but are in use.
    """

    entries: int
    size: int
    kept: int


def limit(environment: Environment) -> int:
    """Bytes that the store may take: ``KERNFORGE_STORE_SIZE``, else 30 GB.

    Raises:
        UsageError: the variable is not a size.
    """
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
            if len(path.name) == _KEY_LENGTH:
                with contextlib.suppress(FileNotFoundError):
                    used = _used(store, kind, path)
                    yield StoreEntry(kind=kind, path=path, size=_size(store, path), used=used)


def environments(store: Store) -> Iterator[StoreEntry]:
    """Every Python environment beside the store, also one that is not complete."""
    for path in (store.root.parent / ENVIRONMENTS).glob("torch*"):
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                used = _used(store, ENVIRONMENTS, path)
                size = files.tree_bytes(path)
                yield StoreEntry(kind=ENVIRONMENTS, path=path, size=size, used=used)


def survey(store: Store) -> tuple[KindUsage, ...]:
    """What the store holds, by kind."""
    trees = list(entries(store))
    kinds = [_usage(name, [entry for entry in trees if entry.kind == name]) for name in STORE_KINDS]
    for name in _OTHERS:
        count = sum(1 for path in (store.root / name).rglob("*") if path.is_file())
        size = files.tree_bytes(store.root / name)
        kinds.append(KindUsage(name=name, entries=count, size=size, oldest=None))
    return tuple(kinds)


def survey_environments(store: Store) -> KindUsage:
    """The environments beside the store."""
    return _usage(ENVIRONMENTS, list(environments(store)))


def _usage(name: str, here: list[StoreEntry]) -> KindUsage:
    return KindUsage(
        name=name,
        entries=len(here),
        size=sum(entry.size for entry in here),
        oldest=min((entry.used for entry in here), default=None),
    )


def trim(store: Store, size: int) -> Removed:
    """Take trees and environments away until the others fit into ``size`` bytes.

    Those that were not used for longest go first.
    """
    return _fit(store, (*entries(store), *environments(store)), size)


def _fit(store: Store, there: Iterable[StoreEntry], size: int) -> Removed:
    least_recent_first = sorted(there, key=lambda entry: entry.used)
    excess = sum(entry.size for entry in least_recent_first) - size
    chosen = []
    for entry in least_recent_first:
        if excess <= 0:
            break
        chosen.append(entry)
        excess -= entry.size
    return _remove(store, chosen)


def keep(store: Store, size: int, *, every_s: float) -> None:
    """Trim a store, unless that was done less than ``every_s`` seconds ago.

    It looks at all of the store: too long after each edit of an inner loop.
    """
    mark = store.root / "trimmed"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - mark.stat().st_mtime < every_s:
            return
    files.touch(mark)
    _fit(store, entries(store), size)


def clear(store: Store, kind: str) -> Removed:
    """Take all trees of a kind, or all environments, away.

    Raises:
        UsageError: there is no such kind.
    """
    if kind == ENVIRONMENTS:
        return _remove(store, list(environments(store)))
    if kind not in STORE_KINDS:
        raise UsageError(
            f"the store has no entries of kind {kind!r}",
            hint=f"its kinds are {', '.join((*STORE_KINDS, ENVIRONMENTS))}",
        )
    return _remove(store, [entry for entry in entries(store) if entry.kind == kind])


def _remove(store: Store, chosen: list[StoreEntry]) -> Removed:
    since = store.leased_since()
    gone = size = 0
    for entry in chosen:
        take = _take_environment if entry.kind == ENVIRONMENTS else _take
        if take(store, entry, since):
            gone += 1
            size += entry.size
    _tidy(store)
    return Removed(entries=gone, size=size, kept=len(chosen) - gone)


def _take(store: Store, entry: StoreEntry, since: float) -> bool:
    with files.staging(entry.path.parent) as grave, files.gate(store.gate, alone=True):
        try:
            used = _used(store, entry.kind, entry.path)
        except FileNotFoundError:
            return False
        if used >= since or used != entry.used:
            return False
        store.take(entry.kind, entry.path.name, grave)
        files.remove_tree(_size_file(store, entry.path))
        files.remove_tree(store.mark(entry.kind, entry.path.name))
    return True


def _take_environment(store: Store, entry: StoreEntry, since: float) -> bool:
    # Who makes or finds an environment holds its lock, and a lease for as long as it is used.
    lock = entry.path.with_name(f"{entry.path.name}.lock")
    with (
        files.staging(entry.path.parent) as grave,
        files.gate(lock, alone=True, wait_s=0) as free,
    ):
        try:
            used = _used(store, entry.kind, entry.path)
        except FileNotFoundError:
            return False
        if not free or used >= since or used != entry.used:
            return False
        files.rename(entry.path, grave / "gone")
        files.remove_tree(lock)
    return True


def _used(store: Store, kind: str, path: Path) -> float:
    mark = path / ENVIRONMENT_USED if kind == ENVIRONMENTS else store.mark(kind, path.name)
    try:
        return mark.stat().st_mtime
    except FileNotFoundError:
        # Another version made it. Its mtime is a constant, so that results have the same bytes.
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


def _tidy(store: Store) -> None:
    """Remove what is not needed: old locks, leavings of killed processes."""
    horizon = time.time() - _DAY_S
    for kind in STORE_KINDS:
        for directory in (store.root / kind).glob("??"):
            store.sweep(directory, "tmp-*")
    for path in (store.root / "locks").glob("*-*"):
        with contextlib.suppress(FileNotFoundError):
            # A process that waits for a lock has opened its file, which makes it young.
            if path.stat().st_mtime < horizon:
                with files.gate(path, alone=True, wait_s=0) as free:
                    if free:
                        files.remove_tree(path)
