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

    from kernforge.build.plan.graph import Action, Input, Plan
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


def run_action(
    action: Action, plan: Plan, project: Project | None, context: ActionContext, *, threads: int = 1
) -> Done:
    """Get one action's result into the context's store, whose other results it may read.

    ``threads`` is how many it may use; its result does not depend on them.
    """
    try:
        completed = ActionRun(plan, project, context, threads).result(action)
    except _FailedError as error:
        return Done(origin="failed", failure=error.failure)
    if completed:
        return Done(origin="ran", completed=completed)
    return Done(origin=origin(action.key, context.store))


def origin(key: str, store: Store) -> str:
    """Where a result came from that is in the store."""
    return "shared" if key in store.fetched else "store"


def resolve(text: str, paths: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return _PLACEHOLDER.sub(lambda match: paths[match[1]], text)


class ActionRun:
    """Runs one action."""

    def __init__(
        self, plan: Plan, project: Project | None, context: ActionContext, threads: int
    ) -> None:
        self._plan, self._project, self._context = plan, project, context
        self._threads = threads

    def result(self, action: Action) -> Completed | None:
        """Get an action's result into the store; None when it was there."""
        completed: list[Completed] = []

        def fill(tree: Path) -> None:
            completed.append(self._run(action, tree))

        self._context.store.tree(STORE_KIND, action.key, fill)
        return completed[0] if completed else None

    def _run(self, action: Action, tree: Path) -> Completed:
        with self._directory(action) as directory:
            done = self._run_in(action, directory)
            for output in action.outputs:
                files.copy_file(directory.work / output, tree / output)
            if log := (done.stdout + done.stderr).strip():
                files.write_new(tree / LOG, log + "\n")
            files.write_new(tree / results.FILE, json.dumps(self._how(action, directory), indent=1))
            # The directory of an action that failed stays, so that its command can be repeated there.
            files.remove_tree(directory.path)
        return done

    def _how(self, action: Action, directory: ActionDirectory) -> dict[str, Any]:
        """How an action and all that it needed were run."""
        known: dict[str, Any] = {}
        for key in sorted(graph.needs(action)):
            known |= results.read_histories(self._context.store.path(STORE_KIND, key))
        known[action.key] = {
            "isolated": self._context.sandbox.isolates,
            "fixed": directory.inside == sandbox.fixed_path(action.key),
            "outputs": {name: files.sha256_file(directory.work / name) for name in action.outputs},
        }
        return known

    @contextlib.contextmanager
    def _directory(self, action: Action) -> Iterator[ActionDirectory]:
        """A directory for one action: seen under the fixed path, or really there, or elsewhere."""
        trees = {name: self._context.trees[name] for name in action.trees}
        spare = self._context.work / action.key[:24]
        fixed = Path(sandbox.fixed_path(action.key))
        if self._context.sandbox.isolates:
            yield self._fill(action, ActionDirectory(path=spare, inside=str(fixed), trees=trees))
            return
        with files.claimed(fixed) as ours:
            path = fixed if ours else spare
            yield self._fill(action, ActionDirectory(path=path, inside=str(path), trees=trees))

    def _fill(self, action: Action, directory: ActionDirectory) -> ActionDirectory:
        """Put the inputs into an action's directory, and its trees next to them."""
        files.remove_tree(directory.work)
        for file in action.inputs:
            self._place(file, directory.work / file.path)
        # Line tables hold the time of a source.
        files.make_dir(directory.work)
        files.set_times(directory.work, sandbox.EPOCH)
        files.remove_tree(directory.path / "tmp")
        files.make_dir(directory.path / "tmp")
        for name, real in directory.mounted().items():
            seen = directory.path / "roots" / name
            if self._context.sandbox.isolates:
                files.make_dir(seen)
            else:
                files.symlink(real, seen)
        return directory

    def _run_in(self, action: Action, directory: ActionDirectory) -> Completed:
        paths = {name: directory.tree(name) for name in directory.trees} | {
            "threads": str(self._threads)
        }
        argv = tuple(resolve(part, paths) for part in action.argv)
        command = sandbox.command(self._context.sandbox, directory, argv)
        try:
            done = self._context.runner(command)
        except FileNotFoundError as error:
            raise BuildError(
                f"{argv[0]} is not there", hint="the store is damaged: remove KERNFORGE_HOME/store"
            ) from error
        done = replace(done, returncode=sandbox.returncode(self._context.sandbox, done.returncode))
        missing = [name for name in action.outputs if not (directory.work / name).is_file()]
        if done.returncode != 0 or done.timed_out or missing:
            files.write_new(directory.path / _AGAIN, sandbox.by_hand(command))
            raise _FailedError(_failure(action, f"sh {directory.path / _AGAIN}", done, missing))
        return done

    def _place(self, file: Input, path: Path) -> None:
        if file.origin == "project" and self._project:
            files.copy_file(self._project.files[file.name], path)
        elif file.origin == "text":
            files.write_new(path, self._plan.texts[file.name])
        else:
            key, _, output = file.name.partition("/")
            files.link_or_copy(self._context.store.path(STORE_KIND, key) / output, path)


def _failure(action: Action, repeat: str, done: Completed, missing: list[str]) -> Failure:
    output = (done.stdout + done.stderr).strip()
    if done.returncode == 0 and not done.timed_out:
        output += f"\n{action.argv[0]} succeeded without writing {', '.join(missing)}"
    if done.returncode < 0:
        output += f"\nkilled by signal {-done.returncode}" + (
            ": out of memory? Try fewer --jobs" if done.returncode == -9 else ""  # noqa: PLR2004
        )
    return Failure(action=action, returncode=done.returncode, output=output.strip(), repeat=repeat)


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.action.title)
        self.failure = failure
