# SPDX-License-Identifier: Apache-2.0
"""Run a plan: every action that the store does not know yet, then lay the variants out.

The order is ``graphlib``'s, the hands are a crew's: threads here, or a cluster. An action runs in a
directory of its own that holds its inputs and nothing else, and its outputs enter the store by
one rename. When one fails, what needs it is left out and everything else goes on; when one is
killed for its memory, it gets a second chance with the machine to itself.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import graphlib
import json
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernforge import artifact as artifacts
from kernforge import estimate, files, sandbox
from kernforge.artifact import BuiltWith
from kernforge.crew import Crew as LocalCrew
from kernforge.errors import BuildError
from kernforge.measures import Measures
from kernforge.provenance import Made
from kernforge.sandbox import Room, Sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from kernforge.estimate import Estimate
    from kernforge.plan import Action, Artifact, Plan
    from kernforge.project import Project
    from kernforge.provenance import Origin
    from kernforge.run import Completed, Runner
    from kernforge.store import Store

SHELF = "actions"
_LOG = "kernforge-log.txt"
_MADE = "kernforge-made.json"
_AGAIN = "again.sh"
_PLACEHOLDER = re.compile(r"%\{([\w.+-]+)\}")
# How a compiler, a driver that started one, and a shell say that the kernel killed it.
_KILLED = re.compile(
    r"died due to signal 9|Killed signal terminated|signal 9 \(|^Killed$", re.MULTILINE
)
_PULLS = 16
_KILL_STATUS = (-9, 128 + 9)


class Events(Protocol):
    """Told what a build is doing."""

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """So many actions will be looked at; ``usage`` tells the memory of running ones by key."""
        ...

    def started(self, action: Action) -> None:
        """An action begins."""
        ...

    def ended(self, action: Action, done: Done) -> None:
        """An action ended."""
        ...

    def finished(self) -> None:
        """The last action ended, or the build was given up."""
        ...


class Crew(Protocol):
    """Who runs actions; see ``crew.Crew`` for the one that works here."""

    patience: float | None

    def choose(
        self,
        waiting: Sequence[Action],
        expected: Mapping[str, Estimate],
        distance: Mapping[str, float],
        alone: Collection[str],
    ) -> tuple[Action, ...]:
        """Those of the waiting actions that are to start now, the most urgent first."""
        ...

    def submit(
        self, action: Action, expected: Estimate, *, alone: bool, work: Callable[[Action], Done]
    ) -> concurrent.futures.Future[Done]:
        """Start an action; ``work`` does it in this process."""
        ...

    def usage(self) -> Mapping[str, int]:
        """Bytes that each running action uses now, by key, as far as is known."""
        ...

    def close(self) -> None:
        """All work is done."""
        ...

    def kill(self) -> None:
        """Stop everything at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How an action ended.

    Attributes:
        origin: ``"ran"``, ``"store"`` or ``"shared"``, where its result came from; or ``"failed"``.
        completed: the program's end, when one ran and went well.
        failure: what went wrong.
        where: the worker that did it; empty for this machine.
    """

    origin: str
    completed: Completed | None = None
    failure: Failure | None = None
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one action took.

    Attributes:
        title: what a person calls it.
        key: its key.
        start_s: when it was handed out, in seconds since the build began.
        wall_s: seconds from start to end.
        cpu_s: CPU seconds.
        peak_bytes: highest memory.
        where: the worker that ran it; empty for this machine.
    """

    title: str
    key: str
    start_s: float
    wall_s: float
    cpu_s: float
    peak_bytes: int
    where: str


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
        sandbox: how an action is kept to what it was given.
    """

    store: Store
    roots: Mapping[str, str]
    runner: Runner
    jobs: int
    sandbox: Sandbox = sandbox.OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a build ended.

    Attributes:
        variants: directory of each variant that was built, by name.
        failures: the actions that failed.
        left_out: variants that were not built because of them.
        ran: how many actions ran.
        reused: how many results came from the store.
        shared: how many of these came from the shared store.
        cpu_s: CPU seconds of those that ran.
        wall_s: seconds from the first action to the last.
        spent: what each action that ran took, the longest first.
    """

    variants: Mapping[str, Path]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]
    ran: int
    reused: int
    shared: int
    cpu_s: float
    wall_s: float
    spent: tuple[Spent, ...]


def build(
    plan: Plan,
    project: Project,
    workshop: Workshop,
    *,
    out: Path,
    origin: Origin,
    events: Events,
    crew: Crew | None = None,
) -> Outcome:
    """Run a plan and lay out each variant whose actions all went well.

    Args:
        plan: what to do.
        project: where the sources are.
        workshop: what to do it with.
        out: directory that will hold a directory for each variant; an old one of the same name
            is replaced as a whole.
        origin: sources, lock and builder, for the provenance of every variant.
        events: is told what happens.
        crew: who runs the actions; threads here, as many as the workshop says, by default.

    Raises:
        StorageError: the disk is full or read-only.
        KeyboardInterrupt: passed on after every program was killed; nothing is left half-written.
    """
    hands = _Hands(plan, project, workshop, events)
    start = time.monotonic()
    hands.work(crew or LocalCrew(jobs=workshop.jobs))
    wall_s = time.monotonic() - start
    variants = {}
    for artifact in plan.artifacts:
        extension = artifact.extension and hands.output(artifact.extension)
        if artifact.extension and not extension:
            continue
        made = made_for(plan, artifact, workshop.store)
        built_with = BuiltWith(origin=origin, actions=made)
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
        shared=hands.shared,
        cpu_s=sum(one.cpu_s for one in hands.spent),
        wall_s=wall_s,
        spent=tuple(sorted(hands.spent, key=lambda one: -one.wall_s)),
    )


def perform(action: Action, plan: Plan, project: Project, workshop: Workshop) -> Done:
    """Get one action's result into the workshop's store, whose other results it may read."""
    return _Hands(plan, project, workshop, None).done(action)


def pull(plan: Plan, store: Store) -> tuple[Action, ...]:
    """Bring what others have built into the store, and return the actions that are left to run."""
    with concurrent.futures.ThreadPoolExecutor(_PULLS if store.shared else 1) as pool:
        there = pool.map(lambda action: store.pull(SHELF, action.key), plan.actions)
        return tuple(a for a, known in zip(plan.actions, there, strict=True) if not known)


def cached(plan: Plan, store: Store) -> frozenset[str]:
    """Keys of the actions whose results the store has."""
    return frozenset(action.key for action in plan.actions if store.has(SHELF, action.key))


def made_for(plan: Plan, artifact: Artifact, store: Store) -> tuple[Made, ...]:
    """How each action of a variant was run and what came of it.

    The result of its link says so of all, so that it does not matter which others are here.
    """
    if artifact.extension is None:
        return ()
    known = _history(store.path(SHELF, artifact.extension))
    return tuple(
        _made(action, known.get(action.key, {}))
        for action in plan.actions
        if artifact.target.name in action.variants
    )


def _made(action: Action, how: Mapping[str, Any]) -> Made:
    return Made(
        title=action.title,
        key=action.key,
        argv=action.argv,
        roots=action.roots,
        outputs=how.get("outputs", {}),
        isolated=how.get("isolated", False),
        fixed=how.get("fixed", False),
    )


def _history(tree: Path) -> dict[str, Any]:
    """How the action of a result and all that it needed were run, by key."""
    path = tree / _MADE
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return known


def forget_unisolated(plan: Plan, store: Store) -> int:
    """Remove the results of a plan that no sandbox saw made, so that they are made again.

    Returns:
        How many these were.
    """
    keys = [action.key for action in plan.actions if store.has(SHELF, action.key)]
    doubtful = [key for key in keys if not _isolated(_history(store.path(SHELF, key)))]
    for key in doubtful:
        store.forget(SHELF, key)
    return len(doubtful)


def _isolated(history: Mapping[str, Any]) -> bool:
    """Whether every action of a history ran in a sandbox; what another version wrote did not."""
    return bool(history) and all(
        isinstance(how, dict) and how.get("isolated", False) for how in history.values()
    )


def all_isolated(plan: Plan, store: Store) -> bool:
    """Whether the store has every result of a plan, made in a sandbox."""
    trees = (store.path(SHELF, action.key) for action in plan.actions)
    return all(_isolated(_history(tree)) for tree in trees)


def resolve(text: str, roots: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return _PLACEHOLDER.sub(lambda match: roots[match[1]], text)


class _Hands:
    """The loop that runs actions, and what came of them."""

    def __init__(
        self, plan: Plan, project: Project, workshop: Workshop, events: Events | None
    ) -> None:
        self._plan, self._project, self._shop, self._events = plan, project, workshop, events
        self._by_key = {action.key: action for action in plan.actions}
        self._work = workshop.store.root / "work"
        self._measures = Measures(workshop.store.root, jobs=workshop.jobs)
        self._failed: set[str] = set()
        self._alone: set[str] = set()
        self._began = time.monotonic()
        self._started: dict[str, float] = {}
        self.failures: list[Failure] = []
        self.spent: list[Spent] = []
        self.ran = self.reused = self.shared = 0

    def work(self, crew: Crew) -> None:
        # The directories of failed actions stay for a day, so that they can be looked at.
        self._shop.store.sweep(self._work, "*")
        directory, pattern = sandbox.ROOMS
        self._shop.store.sweep(Path(directory), pattern)
        order = graphlib.TopologicalSorter({a.key: _needs(a) for a in self._plan.actions})
        order.prepare()
        if self._events:
            self._events.planned(len(self._plan.actions), crew.usage)
        try:
            self._loop(order, crew)
        except BaseException:
            crew.kill()
            raise
        finally:
            if self._events:
                self._events.finished()
        crew.close()

    def output(self, key: str) -> Path | None:
        """The one output of an action, if it was made."""
        if not self._shop.store.has(SHELF, key):
            return None
        return self._shop.store.path(SHELF, key) / self._by_key[key].outputs[0]

    def done(self, action: Action) -> Done:
        """Get an action's result into the store, and tell how that went."""
        try:
            completed = self._one(action)
        except _FailedError as error:
            return Done(origin="failed", failure=error.failure)
        if completed:
            return Done(origin="ran", completed=completed)
        return Done(origin=self._origin(action.key))

    def _origin(self, key: str) -> str:
        return "shared" if key in self._shop.store.fetched else "store"

    def _loop(self, order: graphlib.TopologicalSorter[str], crew: Crew) -> None:
        running: dict[concurrent.futures.Future[Done], Action] = {}
        waiting: dict[str, Action] = {}
        missing = [a for a in self._plan.actions if not self._shop.store.has(SHELF, a.key)]
        expected = {action.key: self._measures.expect(action) for action in missing}
        seconds = {a.key: 0.0 for a in self._plan.actions}
        seconds |= {key: one.seconds for key, one in expected.items()}
        distance = estimate.distances(self._plan.actions, _needs, seconds)
        while order.is_active():
            for key in order.get_ready():
                action = self._by_key[key]
                if _needs(action) & self._failed:
                    self._failed.add(key)
                    order.done(key)
                elif self._shop.store.use(SHELF, key):
                    self._note(action, Done(origin=self._origin(key)))
                    order.done(key)
                else:
                    waiting[key] = action
                    if key not in expected:  # it was taken away since
                        expected[key] = self._measures.expect(action)
            for action in crew.choose(tuple(waiting.values()), expected, distance, self._alone):
                del waiting[action.key]
                self._started[action.key] = time.monotonic()
                if self._events:
                    self._events.started(action)
                future = crew.submit(
                    action, expected[action.key], alone=action.key in self._alone, work=self.done
                )
                running[future] = action
            finished, _ = concurrent.futures.wait(
                running, timeout=crew.patience, return_when="FIRST_COMPLETED"
            )
            for future in finished:
                action = running.pop(future)
                if self._again(action, done := future.result()):
                    waiting[action.key] = action
                else:
                    self._note(action, done)
                    order.done(action.key)

    def _again(self, action: Action, done: Done) -> bool:
        """Whether an action that failed is to be tried once more, with nothing beside it."""
        if not done.failure or action.key in self._alone or not out_of_memory(done.failure):
            return False
        self._alone.add(action.key)
        return True

    def _note(self, action: Action, done: Done) -> None:
        if done.failure:
            self.failures.append(done.failure)
            self._failed.add(action.key)
        elif done.completed:
            ended = done.completed
            self.ran += 1
            self.spent.append(
                Spent(
                    title=action.title,
                    key=action.key,
                    start_s=self._started[action.key] - self._began,
                    wall_s=ended.wall_s,
                    cpu_s=ended.cpu_s,
                    peak_bytes=ended.peak_bytes,
                    where=done.where,
                )
            )
            self._measures.learn(action, peak_bytes=ended.peak_bytes, wall_s=ended.wall_s)
        else:
            self.reused += 1
            self.shared += done.origin == "shared"
        if self._events:
            self._events.ended(action, done)

    def _one(self, action: Action) -> Completed | None:
        """Get an action's result into the store; None when it was there."""
        completed: list[Completed] = []

        def fill(tree: Path) -> None:
            completed.append(self._run(action, tree))

        self._shop.store.tree(SHELF, action.key, fill)
        return completed[0] if completed else None

    def _run(self, action: Action, tree: Path) -> Completed:
        with self._room(action) as room:
            done = self._run_in(action, room)
            for output in action.outputs:
                files.copy_file(room.work / output, tree / output)
            if log := (done.stdout + done.stderr).strip():
                files.write_new(tree / _LOG, log + "\n")
            files.write_new(tree / _MADE, json.dumps(self._how(action, room), indent=1))
            # One that failed is kept, so that its command can be repeated in it.
            files.remove_tree(room.path)
        return done

    def _how(self, action: Action, room: Room) -> dict[str, Any]:
        """How an action and all that it needed were run."""
        known: dict[str, Any] = {}
        for key in sorted(_needs(action)):
            known |= _history(self._shop.store.path(SHELF, key))
        known[action.key] = {
            "isolated": self._shop.sandbox.isolates,
            "fixed": room.place == sandbox.place_of(action.key),
            "outputs": {name: files.sha256_file(room.work / name) for name in action.outputs},
        }
        return known

    @contextlib.contextmanager
    def _room(self, action: Action) -> Iterator[Room]:
        """A directory for one action: mounted at its place, or really there, or elsewhere."""
        roots = {name: self._shop.roots[name] for name in action.roots}
        own = self._work / action.key[:24]
        place = Path(sandbox.place_of(action.key))
        if self._shop.sandbox.isolates:
            yield self._furnish(action, Room(path=own, place=str(place), roots=roots))
            return
        with files.claimed(place) as ours:
            path = place if ours else own
            yield self._furnish(action, Room(path=path, place=str(path), roots=roots))

    def _furnish(self, action: Action, room: Room) -> Room:
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
            if self._shop.sandbox.isolates:
                files.make_dir(seen)
            else:
                files.symlink(real, seen)
        return room

    def _run_in(self, action: Action, room: Room) -> Completed:
        roots = {name: room.seen(name) for name in room.roots} | {"threads": str(self._shop.jobs)}
        argv = tuple(resolve(part, roots) for part in action.argv)
        command = sandbox.command(self._shop.sandbox, room, argv)
        try:
            done = self._shop.runner(command)
        except FileNotFoundError as error:
            raise BuildError(
                f"{argv[0]} is not there", hint="the store is damaged: remove KERNFORGE_HOME/store"
            ) from error
        done = replace(done, returncode=sandbox.returncode(self._shop.sandbox, done.returncode))
        if done.returncode != 0 or done.timed_out:
            files.write_new(room.path / _AGAIN, sandbox.by_hand(command))
            raise _FailedError(_failure(action, f"sh {room.path / _AGAIN}", done))
        return done

    def _place(self, origin: str, name: str, path: Path) -> None:
        if origin == "project":
            files.copy_file(self._project.files[name], path)
        elif origin == "text":
            files.write_new(path, self._plan.texts[name])
        else:
            key, _, output = name.partition("/")
            files.link_or_copy(self._shop.store.path(SHELF, key) / output, path)


def _failure(action: Action, repeat: str, done: Completed) -> Failure:
    output = (done.stdout + done.stderr).strip()
    if done.returncode < 0:
        output += f"\nkilled by signal {-done.returncode}" + (
            ": out of memory? Try fewer --jobs" if done.returncode == -9 else ""  # noqa: PLR2004
        )
    return Failure(action=action, returncode=done.returncode, output=output.strip(), repeat=repeat)


def out_of_memory(failure: Failure) -> bool:
    """Whether the kernel killed the program, or one that it started."""
    return failure.returncode in _KILL_STATUS or bool(_KILLED.search(failure.output))


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.action.title)
        self.failure = failure


def _needs(action: Action) -> set[str]:
    return {i.name.partition("/")[0] for i in action.inputs if i.origin == "action"}
