# SPDX-License-Identifier: Apache-2.0
"""What to change on a branch of a hub, in as few commits as the hub takes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST = 1000
"""Operations that a hub takes in one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A file to write, by the name of its content, or to delete."""

    path: str
    content: str | None


def plan(
    head: Mapping[str, str], target: Mapping[str, str], *, whole: Iterable[str]
) -> tuple[Operation, ...]:
    """The operations that turn one tree into another, by path.

    Args:
        head: path to content, of all that is there.
        target: the same, of all that shall be there below the folders of ``whole``.
        whole: folders, or beginnings of names in one, of which nothing else shall stay. What lies
            outside of them is left alone.
    """
    folders = tuple(folder if "/" in folder else f"{folder}/" for folder in whole)
    stale = {path for path in head if path.startswith(folders) and path not in target}
    changed = {path for path, content in target.items() if head.get(path) != content}
    return tuple(Operation(path=path, content=target.get(path)) for path in sorted(stale | changed))


def batches(operations: Iterable[Operation], most: int = MOST) -> list[list[Operation]]:
    """Operations in groups of at most so many; those of one variant stay together if they can."""
    found: list[list[Operation]] = []
    for _, group in groupby(operations, key=lambda operation: operation.path.split("/")[:2]):
        pending = list(group)
        if found and len(found[-1]) + len(pending) <= most:
            found[-1].extend(pending)
            continue
        found += [pending[i : i + most] for i in range(0, len(pending), most)]
    return found
