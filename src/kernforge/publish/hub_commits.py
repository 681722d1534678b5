# SPDX-License-Identifier: Apache-2.0
"""The changes of a branch of a hub, in as few commits as the hub accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

MOST = 1000
"""Operations that a hub accepts in one commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A file to write, with the hash of its content, or to delete if ``content`` is None."""

    path: str
    content: str | None


def plan(
    head: Mapping[str, str], target: Mapping[str, str], *, whole: Iterable[str]
) -> tuple[Operation, ...]:
    """The operations that change one tree into another, sorted by path.

    Args:
        head: content hash by path, of all present files.
        target: content hash by path, of all files that the folders of ``whole`` have after it.
        whole: folders, or prefixes of paths, in which other files are deleted. Other folders are
            not changed.
    """
    folders = tuple(folder if "/" in folder else f"{folder}/" for folder in whole)
    stale = {path for path in head if path.startswith(folders) and path not in target}
    changed = {path for path, content in target.items() if head.get(path) != content}
    return tuple(Operation(path=path, content=target.get(path)) for path in sorted(stale | changed))


def batches(operations: Iterable[Operation], most: int = MOST) -> list[list[Operation]]:
    """Operations in groups of at most ``most``; those of one variant in one group if possible."""
    groups: list[list[Operation]] = []
    for _, group in groupby(operations, key=lambda operation: operation.path.split("/")[:2]):
        pending = list(group)
        if groups and len(groups[-1]) + len(pending) <= most:
            groups[-1].extend(pending)
            continue
        groups += [pending[i : i + most] for i in range(0, len(pending), most)]
    return groups
