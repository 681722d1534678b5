# SPDX-License-Identifier: Apache-2.0
"""Run one action, in a directory that holds its inputs and nothing else.

Its outputs enter the store by one rename. The directory of one that failed stays, with a script
that runs it again by hand.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.build.execute import results, sandbox
from kernforge.build.execute.outcome import Done, Failure
from kernforge.build.execute.results import STORE_KIND
from kernforge.build.execute.sandbox import ActionDirectory, Sandbox
from kernforge.build.plan import graph
from kernforge.errors import BuildError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.build.plan.graph import Action, Plan
    from kernforge.project.api import Project
    from kernforge.store.local import Store
    from kernforge.system.process import Completed, Runner

LOG = "kernforge-log.txt"
"""File of a result that holds what the program printed."""
_AGAIN = "again.sh"
_PLACEHOLDER = re.compile(r"%\{([\w.+-]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What actions are run with.

    Attributes:
        store: results by key.
        trees: real path of each toolchain tree by name.
        runner: starts programs.
        jobs: how many actions run at once.
        sandbox: how an action is kept to its inputs.
    """

    store: Store
    trees: Mapping[str, str]
    runner: Runner
    jobs: int
    sandbox: Sandbox = sandbox.OFF

    @property
    def work(self) -> Path:
        """Where an action runs whose own directory is taken."""
        return self.store.root / "work"


def perform(
    action: Action, plan: Plan, project: Project | None, context: ActionContext, *, threads: int = 1
) -> Done:
    """Get one action's result into the context's store, whose other results it may read.

    ``threads`` is how many it may use; its result does not depend on them.
    """
    try:
        completed = ActionRun(plan, project, context, threads).one(action)
    except _FailedError as error:
        return Done(origin="failed", failure=error.failure)
    if completed:
        return Done(origin="ran", completed=completed)
    return Done(origin=origin(action.key, context.store))


def origin(key: str, store: Store) -> str:
    """Where a result came from that is in the store."""
    return "shared" if key in store.fetched else "store"


def resolve(text: str, roots: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return _PLACEHOLDER.sub(lambda match: roots[match[1]], text)


class ActionRun:
    """Runs one action."""

    def __init__(
        self, plan: Plan, project: Project | None, context: ActionContext, threads: int
    ) -> None:
        self._plan, self._project, self._context = plan, project, context
        self._threads = threads

    def one(self, action: Action) -> Completed | None:
        """Get an action's result into the store; None when it was there."""
        completed: list[Completed] = []

        def fill(tree: Path) -> None:
            completed.append(self._run(action, tree))

        self._context.store.tree(STORE_KIND, action.key, fill)
        return completed[0] if completed else None

    def _run(self, action: Action, tree: Path) -> Completed:
        with self._room(action) as room:
            done = self._run_in(action, room)
            for output in action.outputs:
                files.copy_file(room.work / output, tree / output)
            if log := (done.stdout + done.stderr).strip():
                files.write_new(tree / LOG, log + "\n")
            files.write_new(tree / results.FILE, json.dumps(self._how(action, room), indent=1))
            # One that failed is kept, so that its command can be repeated in it.
            files.remove_tree(room.path)
        return done

    def _how(self, action: Action, room: ActionDirectory) -> dict[str, Any]:
        """How an action and all that it needed were run."""
        known: dict[str, Any] = {}
        for key in sorted(graph.needs(action)):
            known |= results.read_histories(self._context.store.path(STORE_KIND, key))
        known[action.key] = {
            "isolated": self._context.sandbox.isolates,
            "fixed": room.place == sandbox.place_of(action.key),
            "outputs": {name: files.sha256_file(room.work / name) for name in action.outputs},
        }
        return known

    @contextlib.contextmanager
    def _room(self, action: Action) -> Iterator[ActionDirectory]:
        """A directory for one action: mounted at its place, or really there, or elsewhere."""
        roots = {name: self._context.trees[name] for name in action.roots}
        own = self._context.work / action.key[:24]
        place = Path(sandbox.place_of(action.key))
        if self._context.sandbox.isolates:
            yield self._furnish(action, ActionDirectory(path=own, place=str(place), roots=roots))
            return
        with files.claimed(place) as ours:
            path = place if ours else own
            yield self._furnish(action, ActionDirectory(path=path, place=str(path), roots=roots))

    def _furnish(self, action: Action, room: ActionDirectory) -> ActionDirectory:
        files.remove_tree(room.work)
        for one in action.inputs:
            self._place(one.origin, one.name, room.work / one.path)
        # Line tables hold the time of a source.
        files.make_dir(room.work)
        files.set_times(room.work, sandbox.EPOCH)
        files.remove_tree(room.path / "tmp")
        files.make_dir(room.path / "tmp")
        for name, real in room.trees().items():
            seen = room.path / "roots" / name
            if self._context.sandbox.isolates:
                files.make_dir(seen)
            else:
                files.symlink(real, seen)
        return room

    def _run_in(self, action: Action, room: ActionDirectory) -> Completed:
        roots = {name: room.seen(name) for name in room.roots} | {"threads": str(self._threads)}
        argv = tuple(resolve(part, roots) for part in action.argv)
        command = sandbox.command(self._context.sandbox, room, argv)
        try:
            done = self._context.runner(command)
        except FileNotFoundError as error:
            raise BuildError(
                f"{argv[0]} is not there", hint="the store is damaged: remove KERNFORGE_HOME/store"
            ) from error
        done = replace(done, returncode=sandbox.returncode(self._context.sandbox, done.returncode))
        missing = [name for name in action.outputs if not (room.work / name).is_file()]
        if done.returncode != 0 or done.timed_out or missing:
            files.write_new(room.path / _AGAIN, sandbox.by_hand(command))
            raise _FailedError(_failure(action, f"sh {room.path / _AGAIN}", done, missing))
        return done

    def _place(self, origin: str, name: str, path: Path) -> None:
        if origin == "project" and self._project:
            files.copy_file(self._project.files[name], path)
        elif origin == "text":
            files.write_new(path, self._plan.texts[name])
        else:
            key, _, output = name.partition("/")
            files.link_or_copy(self._context.store.path(STORE_KIND, key) / output, path)


def _failure(action: Action, repeat: str, done: Completed, missing: list[str]) -> Failure:
    output = (done.stdout + done.stderr).strip()
    if done.returncode == 0 and not done.timed_out:
        output += f"\n{action.argv[0]} says that it went well, and made no {', '.join(missing)}"
    if done.returncode < 0:
        output += f"\nkilled by signal {-done.returncode}" + (
            ": out of memory? Try fewer --jobs" if done.returncode == -9 else ""  # noqa: PLR2004
        )
    return Failure(action=action, returncode=done.returncode, output=output.strip(), repeat=repeat)


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.action.title)
        self.failure = failure
