# SPDX-License-Identifier: Apache-2.0
"""The results of a plan that the store has, and how each was made.

A file in each result says how its action and all that it needed were run.
"""

from __future__ import annotations

import concurrent.futures
import graphlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.builder.execute import opened
from kernforge.builder.plan import graph
from kernforge.builder.plan.graph import Action, Artifact, Plan
from kernforge.errors import IntegrityError
from kernforge.store.local import Store
from kernforge.system import files

STORE_KIND = "actions"
"""The kind of the results in the store."""
FILE = "kernforge-made.json"
_PULLS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """How an action was run.

    Attributes:
        argv: its program and arguments, trees as ``%{root}``.
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
        list(pool.map(lambda action: store.bring(STORE_KIND, action.key), plan.actions))
    discard_damaged(plan, store)
    return tuple(a for a in plan.actions if not store.has(STORE_KIND, a.key))


def discard_damaged(plan: Plan, store: Store) -> None:
    """Remove results that a run of the plan reads and that are damaged or of other headers.

    What nothing reads because all that needs it is there is not looked at: that would take longer
    than the rest of a build with nothing to do.
    """
    by_key = {action.key: action for action in plan.actions}
    needs = {action.key: graph.needs(action) for action in plan.actions}
    wanted = set(by_key) - {key for needed in needs.values() for key in needed}
    for key in reversed(tuple(graphlib.TopologicalSorter(needs).static_order())):
        if key in wanted and not _is_sound(store, key):
            wanted |= needs.get(key, set())


def _is_sound(store: Store, key: str) -> bool:
    """Whether a result is here as its action made it, and holds good; another is removed."""
    tree = store.use(STORE_KIND, key)
    if tree is None:
        return False
    how = read_histories(tree).get(key)
    if how and all(_sha256(tree / n) == sha256 for n, sha256 in how.get("outputs", {}).items()):
        if opened.are_here(tree):
            return True
    else:
        store.note(f"the store's {STORE_KIND}/{key[:12]} was damaged, and is made again")
    store.forget(STORE_KIND, key)
    return False


def _sha256(path: Path) -> str:
    return "" if path.is_symlink() else opened.sha256(str(path))


def holds_here(kind: str, tree: Path) -> bool:
    """Whether a tree is not a result, or was made with headers that this machine has."""
    return kind != STORE_KIND or opened.are_here(tree)


def cached(plan: Plan, store: Store) -> frozenset[str]:
    """Keys of the actions whose results the store has, made with headers that are here."""
    there = (a.key for a in plan.actions if store.has(STORE_KIND, a.key))
    return frozenset(key for key in there if opened.are_here(store.path(STORE_KIND, key)))


def records(plan: Plan, artifact: Artifact, store: Store) -> tuple[ActionRecord, ...]:
    """How each action of a variant was run and what came of it.

    The result of its link says so of all, so that it does not matter which others are here.
    """
    if artifact.extension is None:
        return ()
    known = read_histories(store.path(STORE_KIND, artifact.extension))
    actions = graph.behind(plan, artifact.extension)
    return tuple(
        ActionRecord(
            title=action.title,
            key=action.key,
            argv=action.argv,
            trees=action.trees,
            outputs=how.get("outputs", {}),
            isolated=how.get("isolated", False),
            fixed=how.get("fixed", False),
        )
        for action in actions
        for how in [known.get(action.key, {})]
    )


def read_histories(tree: Path) -> dict[str, Any]:
    """How the action of a result and all that it needed were run, by key."""
    path = tree / FILE
    try:
        known: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:  # damaged, and of no use for anything
        return {}
    return known


def copy_output(store: Store, key: str, output: str, target: Path) -> None:
    """Copy a file of a result out of the store, and compare the copy with what was made.

    Raises:
        IntegrityError: it is not what the action made.
    """
    tree = store.path(STORE_KIND, key)
    files.copy_file(tree / output, target)
    made = read_histories(tree).get(key, {}).get("outputs", {}).get(output)
    if made is not None and files.sha256_file(target) != made:
        store.forget(STORE_KIND, key)
        raise IntegrityError(
            f"{tree / output} changed while the build ran: it is not what was made",
            hint="it was removed from the store; build again",
        )


def forget_unisolated(keys: Iterable[str], store: Store) -> None:
    """Remove those of these results that no sandbox saw made, so that they are made again."""
    for key in keys:
        if store.has(STORE_KIND, key) and not isolated(STORE_KIND, store.path(STORE_KIND, key)):
            store.forget(STORE_KIND, key)


def isolated_here(kind: str, tree: Path) -> bool:
    """Whether a tree is not a result, or holds here and was made in a sandbox."""
    return holds_here(kind, tree) and isolated(kind, tree)


def isolated(kind: str, tree: Path) -> bool:
    """Whether a tree is not a result, or every action behind it ran in a sandbox.

    What another version wrote did not.
    """
    if kind != STORE_KIND:
        return True
    history = read_histories(tree)
    return bool(history) and all(
        isinstance(how, dict) and how.get("isolated", False) for how in history.values()
    )


def all_isolated(plan: Plan, store: Store) -> bool:
    """Whether the store has every result of a plan, made in a sandbox."""
    return all(isolated(STORE_KIND, store.path(STORE_KIND, a.key)) for a in plan.actions)
