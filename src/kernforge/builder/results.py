# SPDX-License-Identifier: Apache-2.0
"""The results of a plan that the store has, and how each was made.

A file in each result says how its action and all that it needed were run, and which headers of the
machine (as those of zlib or Eigen) their compilers opened, with their content. No key has these. A
result whose headers this machine does not have is made again.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kernforge.builder import graph
from kernforge.builder.graph import Action, Artifact, Plan
from kernforge.errors import IntegrityError
from kernforge.store.local import Store
from kernforge.system import files

STORE_KIND = "actions"
"""The kind of the results in the store."""
FILE = "kernforge-made.json"
_PULLS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Provenance of a result and of all results that it was made from.

    Attributes:
        actions: ``isolated`` and ``outputs`` of each ``ActionRecord``, by key.
        headers: hex SHA-256 of the opened headers of the machine, by path.
    """

    actions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def outputs(self, key: str) -> Mapping[str, str]:
        """Hex SHA-256 of the outputs of one action; empty where the action is not known."""
        outputs: Mapping[str, str] = self.actions.get(key, {}).get("outputs", {})
        return outputs

    @property
    def is_isolated(self) -> bool:
        """Whether every action ran in a sandbox."""
        runs = self.actions.values()
        return bool(runs) and all(how.get("isolated", False) for how in runs)

    @property
    def is_valid_here(self) -> bool:
        """Whether this machine has the same headers."""
        return self.fits(compiles=True)

    def fits(self, *, compiles: bool) -> bool:
        """Whether this machine has the same headers; if it does not compile, no others."""
        here = ((sha256(path), digest) for path, digest in self.headers.items())
        known = "" not in self.headers  # a corrupt history
        return known and all(new == old or not (new or compiles) for new, old in here)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """How an action was run.

    Attributes:
        argv: its program and arguments, trees as ``%{root}``.
        outputs: hex SHA-256 of each file that it made.
        isolated: whether it saw nothing but its inputs and toolchain.
    """

    title: str
    key: str
    argv: tuple[str, ...]
    trees: tuple[str, ...]
    outputs: Mapping[str, str]
    isolated: bool


def pull(plan: Plan, store: Store, *, compiles: bool = True) -> None:
    """Fetch results from the shared store."""
    if store.shared:
        with concurrent.futures.ThreadPoolExecutor(_PULLS) as pool:
            list(pool.map(lambda action: store.bring(STORE_KIND, action.key), plan.actions))
    evict_corrupt(plan, store, compiles=compiles)


def evict_corrupt(plan: Plan, store: Store, *, compiles: bool = True) -> None:
    """Evict results that the plan depends on and that are corrupt, or of other headers.

    Results that nothing reads are passed over: to hash them takes longer than a build with
    nothing to do.

    Args:
        compiles: whether this machine can make them again.
    """
    needs = {action.key: action.needs for action in plan.actions}
    wanted = set(needs) - {key for needed in needs.values() for key in needed}
    for action in reversed(plan.actions):
        if action.key in wanted and not _is_sound(store, action.key, compiles):
            wanted |= action.needs


def _is_sound(store: Store, key: str, compiles: bool) -> bool:  # noqa: FBT001
    """Whether a result is intact and valid here; evicts one that is not."""
    tree = store.use(STORE_KIND, key)
    if tree is None:
        return False
    history = read_history(tree)
    outputs = history.outputs(key)
    # An action leaves no link in a result.
    made = {n: "" if (tree / n).is_symlink() else sha256(str(tree / n)) for n in outputs}
    if outputs and made == outputs:
        if history.fits(compiles=compiles):
            return True
    else:
        store.note(f"the store's {STORE_KIND}/{key[:12]} was corrupt: it is evicted and made again")
    store.forget(STORE_KIND, key)
    return False


def cached(plan: Plan, store: Store) -> frozenset[str]:
    """Keys of the actions whose results the store has, valid on this machine."""
    there = (a.key for a in plan.actions if store.has(STORE_KIND, a.key))
    return frozenset(key for key in there if _history(store, key).is_valid_here)


def records(plan: Plan, artifact: Artifact, store: Store) -> tuple[ActionRecord, ...]:
    """Records of the actions of a variant, from the result of its link alone."""
    if artifact.extension is None:
        return ()
    known = _history(store, artifact.extension)
    return tuple(
        ActionRecord(
            title=action.title,
            key=action.key,
            argv=action.argv,
            trees=action.trees,
            outputs=known.outputs(action.key),
            isolated=known.actions.get(action.key, {}).get("isolated", False),
        )
        for action in graph.behind(plan, artifact.extension)
    )


def _history(store: Store, key: str) -> History:
    return read_history(store.path(STORE_KIND, key))


def read_history(tree: Path) -> History:
    """Read the provenance of a result; a corrupt one is valid on no machine."""
    path = tree / FILE
    if not path.is_file():
        return History()
    try:
        document = json.loads(path.read_bytes())
        actions = {str(key): dict(how) for key, how in document["actions"].items()}
        return History(actions=actions, headers=dict(document["headers"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return History(headers={"": "damaged"})


def write_history(
    tree: Path,
    action: Action,
    *,
    isolated: bool,
    needed: Iterable[Path],
    headers: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write the provenance of a result, with that of the results that it was made from."""
    outputs = {name: files.sha256_file(tree / name) for name in action.outputs}
    behind = [read_history(each) for each in needed]
    actions = {k: run for each in behind for k, run in each.actions.items()}
    actions[action.key] = {"isolated": isolated, "outputs": outputs}
    opened = {path: known for each in behind for path, known in each.headers.items()}
    written = History(actions=actions, headers={**opened, **headers})
    files.write_new(tree / FILE, json.dumps(asdict(written), indent=1, sort_keys=True))


def copy_output(store: Store, key: str, output: str, target: Path) -> None:
    """Copy a file of a result out of the store, and verify the copy."""
    tree = store.path(STORE_KIND, key)
    files.copy_file(tree / output, target)
    made = read_history(tree).outputs(key).get(output)
    if made is not None and files.sha256_file(target) != made:
        store.forget(STORE_KIND, key)
        raise IntegrityError(
            f"{tree / output} changed while the build ran: its SHA-256 is not the recorded one",
            hint="it was evicted from the store; build again",
        )


def is_valid(kind: str, tree: Path, *, compiles: bool = True) -> bool:
    """Whether a tree is no result, or one that is valid here."""
    return kind != STORE_KIND or read_history(tree).fits(compiles=compiles)


def is_isolated_and_valid(kind: str, tree: Path) -> bool:
    """Whether a tree is no result, or one that is valid here and was made in a sandbox."""
    return is_valid(kind, tree) and (kind != STORE_KIND or read_history(tree).is_isolated)


def unisolated(keys: Iterable[str], store: Store) -> list[str]:
    """Keys of the results that are missing, or were made without a sandbox."""
    return [key for key in keys if not _history(store, key).is_isolated]


def sha256(path: str) -> str:
    """Hex SHA-256 of a file, cached by inode and times; empty if there is none."""
    try:
        status = os.stat(path) if os.path.isfile(path) else None  # noqa: PTH113, PTH116
    except (OSError, ValueError):
        return ""
    if status is None:
        return ""
    return _sha256(path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@functools.lru_cache(maxsize=1 << 14)
def _sha256(path: str, *_identity: int) -> str:
    return files.sha256_file(Path(path))
