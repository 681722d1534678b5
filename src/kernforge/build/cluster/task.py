# SPDX-License-Identifier: Apache-2.0
"""What is sent to a worker of a cluster, and what it sends back."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge._version import __version__
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import ToolchainError
from kernforge.store import tree_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kernforge.build.execute.action import ActionContext
    from kernforge.build.execute.outcome import Done
    from kernforge.build.plan.graph import Action
    from kernforge.build.workspace import Workspace
    from kernforge.store.local import Store

PROTOCOL = 5
"""Changes whenever a class that is pickled for a worker moves or changes."""
IDENTITY = f"{__version__} (protocol {PROTOCOL})"
"""What both ends must have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionTask:
    """An action with all that a worker needs for it.

    Attributes:
        texts: generated inputs by digest.
        sources: the project's inputs by path.
        results: packed results of other actions by key, where no shared store has them.
        workspace: the project and the compiler, without what only the sender can use.
        shared: URL of the shared store.
    """

    kernforge: str
    action: Action
    texts: Mapping[str, str]
    sources: Mapping[str, bytes]
    results: Mapping[str, bytes]
    workspace: Workspace
    context: ActionContext
    lock: str
    shared: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What a worker sends back.

    Attributes:
        packed: its result; None when it failed or when the shared store has it.
    """

    done: Done
    packed: bytes | None
    notes: tuple[str, ...] = ()


class LostResultError(Exception):
    """A result was to be in the shared store and is not."""


class NullProgress:
    """Says nothing of a worker's downloads."""

    def fetching(self, _what: str, _total: int | None) -> Callable[[int], None]:
        """Count nothing."""
        return lambda _count: None

    def note(self, _text: str) -> None:
        """Say nothing."""


def require_same(sender: str, worker: str) -> None:
    """Refuse to work with another kernforge.

    Raises:
        ToolchainError: they differ.
    """
    if sender != worker:
        raise ToolchainError(
            f"it has kernforge {worker}, the task is from {sender}",
            hint=f"install kernforge {sender} on the workers, with the extras that they have",
        )


def pack_result(store: Store, key: str) -> bytes:
    """A result of the store, as it travels."""
    out = io.BytesIO()
    tree_archive.pack(store.path(STORE_KIND, key), out)
    return out.getvalue()


def unpack_result(store: Store, key: str, data: bytes, *, shared: bool) -> None:
    """Put a result that travelled into the store, and into the shared one if that is wanted."""
    store.tree(
        STORE_KIND, key, lambda tree: tree_archive.unpack(io.BytesIO(data), tree), shared=shared
    )
