# SPDX-License-Identifier: Apache-2.0
"""The results of a plan that the store has, and how each was made.

A file in each result says how its action and all that it needed were run.
"""

from __future__ import annotations

import concurrent.futures
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernforge.build.plan import graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kernforge.build.plan.graph import Action, Artifact, Plan
    from kernforge.store.local import Store

STORE_KIND = "actions"
"""The kind of the results in the store."""
FILE = "kernforge-made.json"
_PULLS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """How an action was run.

    Attributes:
        key: its key in the plan.
        argv: its program and arguments, trees as ``%{root}``.
        trees: the toolchain trees that it read.
        outputs: hex SHA-256 of each file that it made.
        isolated: whether it saw nothing but its inputs and toolchain.
        fixed: whether it ran in the directory that is the same on every machine.
    """

    title: str
    key: str
    argv: tuple[str, ...]
    trees: tuple[str, ...]
    outputs: Mapping[str, str]
    isolated: bool
    fixed: bool


def pull(plan: Plan, store: Store) -> tuple[Action, ...]:
    """Bring what others have built into the store, and return the actions that are left to run."""
    with concurrent.futures.ThreadPoolExecutor(_PULLS if store.shared else 1) as pool:
        there = pool.map(lambda action: store.pull(STORE_KIND, action.key), plan.actions)
        return tuple(a for a, known in zip(plan.actions, there, strict=True) if not known)


def cached(plan: Plan, store: Store) -> frozenset[str]:
    """Keys of the actions whose results the store has."""
    return frozenset(action.key for action in plan.actions if store.has(STORE_KIND, action.key))


def records(plan: Plan, artifact: Artifact, store: Store) -> tuple[ActionRecord, ...]:
    """How each action of a variant was run and what came of it.

    The result of its link says so of all, so that it does not matter which others are here.
    """
    if artifact.extension is None:
        return ()
    known = read_histories(store.path(STORE_KIND, artifact.extension))
    actions = graph.behind(plan, artifact.extension)
    return tuple(_record(action, known.get(action.key, {})) for action in actions)


def _record(action: Action, how: Mapping[str, Any]) -> ActionRecord:
    return ActionRecord(
        title=action.title,
        key=action.key,
        argv=action.argv,
        trees=action.trees,
        outputs=how.get("outputs", {}),
        isolated=how.get("isolated", False),
        fixed=how.get("fixed", False),
    )


def read_histories(tree: Path) -> dict[str, Any]:
    """How the action of a result and all that it needed were run, by key."""
    path = tree / FILE
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return known


def forget_unisolated(keys: Iterable[str], store: Store) -> None:
    """Remove those of these results that no sandbox saw made, so that they are made again."""
    for key in keys:
        if store.has(STORE_KIND, key) and not isolated(STORE_KIND, store.path(STORE_KIND, key)):
            store.forget(STORE_KIND, key)


def isolated(kind: str, tree: Path) -> bool:
    """Whether a tree is not a result, or every action behind it ran in a sandbox."""
    return kind != STORE_KIND or _isolated(read_histories(tree))


def _isolated(history: Mapping[str, Any]) -> bool:
    """Whether every action of a history ran in a sandbox; what another version wrote did not."""
    return bool(history) and all(
        isinstance(how, dict) and how.get("isolated", False) for how in history.values()
    )


def all_isolated(plan: Plan, store: Store) -> bool:
    """Whether the store has every result of a plan, made in a sandbox."""
    trees = (store.path(STORE_KIND, action.key) for action in plan.actions)
    return all(_isolated(read_histories(tree)) for tree in trees)
