# SPDX-License-Identifier: Apache-2.0
"""Run a plan: every action that the store does not know yet, then lay the variants out.

The order is ``graphlib``'s, the hands are a ``concurrent.futures`` executor's. An action runs in a
directory of its own that holds its inputs and nothing else, and its outputs enter the store by
one rename. When one fails, what needs it is left out and everything else goes on.
"""

from __future__ import annotations

import concurrent.futures
import graphlib
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kernforge import artifact as artifacts
from kernforge import files
from kernforge.artifact import BuiltWith
from kernforge.errors import BuildError
from kernforge.run import Command, Completed, kill_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kernforge.plan import Action, Plan
    from kernforge.project import Project
    from kernforge.run import Runner
    from kernforge.store import Store

SHELF = "actions"
_LOG = "kernforge-log.txt"
_PLACEHOLDER = re.compile(r"%\{([\w.+-]+)\}")


class Events(Protocol):
    """Told what a build is doing."""

    def started(self, action: Action) -> None:
        """An action begins."""
        ...

    def ended(self, action: Action, done: Completed | None, failure: Failure | None) -> None:
        """An action ended; ``done`` is None when its result came from the store."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed.

    Attributes:
        action: which.
        returncode: the program's exit status.
        output: what it printed.
        repeat: a shell line that runs it again by hand.
    """

    action: Action
    returncode: int
    output: str
    repeat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """What running needs: where trees lie, where results are kept, and the doors.

    Attributes:
        store: results by key.
        roots: real path of each toolchain tree by name.
        runner: starts programs.
        jobs: how many actions run at once.
        env: environment of every program.
    """

    store: Store
    roots: Mapping[str, str]
    runner: Runner
    jobs: int
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a build ended.

    Attributes:
        variants: directory of each variant that was built, by name.
        failures: the actions that failed.
        left_out: variants that were not built because of them.
        ran: how many actions ran.
        reused: how many results came from the store.
        cpu_s: CPU seconds of those that ran.
    """

    variants: Mapping[str, Path]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]
    ran: int
    reused: int
    cpu_s: float


def build(
    plan: Plan,
    project: Project,
    workshop: Workshop,
    *,
    out: Path,
    facts: Mapping[str, object],
    events: Events,
) -> Outcome:
    """Run a plan and lay out each variant whose actions all went well.

    Args:
        plan: what to do.
        project: where the sources are.
        workshop: what to do it with.
        out: directory that will hold a directory for each variant; an old one of the same name
            is replaced as a whole.
        facts: provenance that holds for every variant.
        events: is told what happens.

    Raises:
        StorageError: the disk is full or read-only.
        KeyboardInterrupt: passed on after every program was killed; nothing is left half-written.
    """
    hands = _Hands(plan, project, workshop, events)
    hands.work()
    variants = {}
    for artifact in plan.artifacts:
        extension = artifact.extension and hands.output(artifact.extension)
        if artifact.extension and not extension:
            continue
        built_with = BuiltWith(facts={**facts, "variant": artifact.target.name})
        with files.staging(out) as staged:
            tree = staged / artifact.target.name
            files.make_dir(tree)
            artifacts.lay_out(artifact, project, extension or None, built_with, tree)
            files.replace_tree(tree, out / artifact.target.name)
        variants[artifact.target.name] = out / artifact.target.name
    names = [a.target.name for a in plan.artifacts]
    return Outcome(
        variants=variants,
        failures=tuple(hands.failures),
        left_out=tuple(name for name in names if name not in variants),
        ran=hands.ran,
        reused=hands.reused,
        cpu_s=hands.cpu_s,
    )


def cached(plan: Plan, store: Store) -> frozenset[str]:
    """Keys of the actions whose results the store has."""
    return frozenset(action.key for action in plan.actions if store.has(SHELF, action.key))


def resolve(text: str, roots: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return _PLACEHOLDER.sub(lambda match: roots[match[1]], text)


class _Hands:
    """The loop that runs actions, and what came of them."""

    def __init__(self, plan: Plan, project: Project, workshop: Workshop, events: Events) -> None:
        self._plan, self._project, self._shop, self._events = plan, project, workshop, events
        self._by_key = {action.key: action for action in plan.actions}
        self._work = workshop.store.root / "work"
        self._failed: set[str] = set()
        self.failures: list[Failure] = []
        self.ran = self.reused = 0
        self.cpu_s = 0.0

    def work(self) -> None:
        # The directories of failed actions stay for a day, so that they can be looked at.
        self._shop.store.sweep(self._work, "*")
        order = graphlib.TopologicalSorter({a.key: _needs(a) for a in self._plan.actions})
        order.prepare()
        with concurrent.futures.ThreadPoolExecutor(self._shop.jobs) as pool:
            try:
                self._loop(order, pool)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                kill_all()
                raise

    def output(self, key: str) -> Path | None:
        """The one output of an action, if it was made."""
        if not self._shop.store.has(SHELF, key):
            return None
        return self._shop.store.path(SHELF, key) / self._by_key[key].outputs[0]

    def _loop(
        self, order: graphlib.TopologicalSorter[str], pool: concurrent.futures.Executor
    ) -> None:
        running: dict[concurrent.futures.Future[Completed | None], str] = {}
        while order.is_active():
            for key in order.get_ready():
                action = self._by_key[key]
                if _needs(action) & self._failed:
                    self._failed.add(key)
                    order.done(key)
                else:
                    running[pool.submit(self._one, action)] = key
            if not running:
                continue
            done, _ = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
            for future in done:
                key = running.pop(future)
                self._note(self._by_key[key], future)
                order.done(key)

    def _note(self, action: Action, future: concurrent.futures.Future[Completed | None]) -> None:
        failure = None
        done = None
        try:
            done = future.result()
        except _FailedError as error:
            failure = error.failure
            self.failures.append(failure)
            self._failed.add(action.key)
        if done:
            self.ran += 1
            self.cpu_s += done.cpu_s
        elif not failure:
            self.reused += 1
        self._events.ended(action, done, failure)

    def _one(self, action: Action) -> Completed | None:
        """Get an action's result into the store; None when it was there."""
        completed: list[Completed] = []

        def fill(tree: Path) -> None:
            self._events.started(action)
            completed.append(self._run(action, tree))

        self._shop.store.tree(SHELF, action.key, fill)
        return completed[0] if completed else None

    def _run(self, action: Action, tree: Path) -> Completed:
        # A directory by the key and not a random one: nvcc writes the path of a source into names.
        room = self._work / action.key[:24]
        files.remove_tree(room)
        temporary = room / "tmp"
        files.make_dir(temporary)
        for one in action.inputs:
            self._place(one.origin, one.name, room / one.path)
        argv = tuple(self._resolved(action))
        env = {**self._shop.env, "TMPDIR": str(temporary)}
        try:
            done = self._shop.runner(Command(argv=argv, cwd=room, env=env))
        except FileNotFoundError as error:
            raise BuildError(
                f"{argv[0]} is not there", hint="the store is damaged: remove KERNFORGE_HOME/store"
            ) from error
        if done.returncode != 0 or done.timed_out:
            raise _FailedError(self._failure(action, argv, room, done))
        for output in action.outputs:
            files.copy_file(room / output, tree / output)
        if log := (done.stdout + done.stderr).strip():
            files.write_new(tree / _LOG, log + "\n")
        files.remove_tree(room)
        return done

    def _resolved(self, action: Action) -> Iterator[str]:
        roots = {**self._shop.roots, "threads": str(self._shop.jobs)}
        return (resolve(part, roots) for part in action.argv)

    def _place(self, origin: str, name: str, path: Path) -> None:
        if origin == "project":
            files.copy_file(self._project.files[name], path)
        elif origin == "text":
            files.write_new(path, self._plan.texts[name])
        else:
            key, _, output = name.partition("/")
            files.link_or_copy(self._shop.store.path(SHELF, key) / output, path)

    def _failure(
        self, action: Action, argv: tuple[str, ...], room: Path, done: Completed
    ) -> Failure:
        # The directory stays, so that the command can be repeated in it.
        line = f"cd {room} && TMPDIR={room / 'tmp'} {shlex.join(argv)}"
        output = (done.stdout + done.stderr).strip()
        if done.returncode < 0:
            output += f"\nkilled by signal {-done.returncode}" + (
                ": out of memory? Try fewer --jobs" if done.returncode == -9 else ""  # noqa: PLR2004
            )
        return Failure(
            action=action, returncode=done.returncode, output=output.strip(), repeat=line
        )


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.action.title)
        self.failure = failure


def _needs(action: Action) -> set[str]:
    return {i.name.partition("/")[0] for i in action.inputs if i.origin == "action"}
