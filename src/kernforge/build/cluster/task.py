# SPDX-License-Identifier: Apache-2.0
"""What travels between a build and a worker of its cluster."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.build.execute.results import SHELF
from kernforge.errors import ToolchainError
from kernforge.store import tree_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernforge.build.execute.action import Workshop
    from kernforge.build.execute.outcome import Done
    from kernforge.build.plan.graph import Action
    from kernforge.build.workspace import Bench
    from kernforge.store.local import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """An action with all that a worker needs for it.

    Attributes:
        version: of the kernforge that sends it.
        action: what to run.
        texts: generated inputs by digest.
        sources: the project's inputs by path.
        results: packed results of other actions by key, where no shared store has them.
        bench: the project and the compiler, without what only the sender can use.
        workshop: likewise.
        lock: text of the lock.
        shared: URL of the shared store.
        redist: address of NVIDIA's redistributables.
    """

    version: str
    action: Action
    texts: Mapping[str, str]
    sources: Mapping[str, bytes]
    results: Mapping[str, bytes]
    bench: Bench
    workshop: Workshop
    lock: str
    shared: str | None
    redist: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """What a worker sends back.

    Attributes:
        done: how the action ended.
        packed: its result; None when it failed or when the shared store has it.
        notes: what the worker wants to be said.
    """

    done: Done
    packed: bytes | None
    notes: tuple[str, ...] = ()


class LostResultError(Exception):
    """A result was to be in the shared store and is not."""


class Mute:
    """Nobody watches a worker's downloads."""

    def fetching(self, _what: str, _total: int | None) -> Callable[[int], None]:
        """Count nothing."""
        return lambda _count: None

    def note(self, _text: str) -> None:
        """Say nothing."""


def same_version(theirs: str, ours: str) -> None:
    """Refuse to work with another kernforge.

    Raises:
        ToolchainError: the versions differ.
    """
    if theirs != ours:
        raise ToolchainError(
            f"it has kernforge {ours}, the build is by {theirs}",
            hint=f"pip install 'kernforge[build,cluster]=={theirs}' on the workers",
        )


def packed(store: Store, key: str) -> bytes:
    """A result of the store, as it travels."""
    out = io.BytesIO()
    tree_archive.pack(store.path(SHELF, key), out)
    return out.getvalue()


def unpack(store: Store, key: str, data: bytes, *, shared: bool) -> None:
    """Put a result that travelled into the store, and into the shared one if that is wanted."""
    store.tree(SHELF, key, lambda tree: tree_archive.unpack(io.BytesIO(data), tree), shared=shared)
