# SPDX-License-Identifier: Apache-2.0
"""Read the whole store, and compare each tree with what it was when it was made."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.store import eviction, records
from kernforge.store.records import NoRecordError

if TYPE_CHECKING:
    from kernforge.store.local import Store


@dataclass(frozen=True, slots=True)
class Damaged:
    """A tree that differs from what it was when it was made, and how."""

    kind: str
    key: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at every byte of the store found.

    Attributes:
        trees: how many were read.
        size: their bytes on the disk.
        repaired: whether these were removed, so that the next use makes them again.
        unrecorded: trees of a kernforge that kept no records; they are recorded as they are when they are used.
    """

    trees: int
    size: int
    damaged: tuple[Damaged, ...]
    repaired: bool
    unrecorded: int


def verify(store: Store, *, repair: bool) -> Verification:
    """Compare every tree of the store with its record."""
    trees = size = unrecorded = 0
    damaged = []
    for entry in eviction.entries(store):
        kind, key = entry.kind, entry.path.name
        problems: tuple[str, ...] = ()
        try:
            problems = store.damage(kind, key)
        except NoRecordError:
            unrecorded += 1
        if not entry.path.exists():  # an eviction took it away meanwhile
            continue
        trees, size = trees + 1, size + entry.size
        if problems:
            damaged.append(Damaged(kind, key, records.sentence(problems)))
            if repair:
                with contextlib.suppress(FileNotFoundError):
                    store.discard_damaged(kind, key)
    return Verification(
        trees=trees,
        size=size,
        damaged=tuple(damaged),
        repaired=repair and bool(damaged),
        unrecorded=unrecorded,
    )
