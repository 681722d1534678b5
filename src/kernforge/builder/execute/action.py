# SPDX-License-Identifier: Apache-2.0
"""Run one action, in a directory that holds its inputs and nothing else.

Its outputs enter the store by one rename. The directory of one that failed stays, and beside it a
script that runs it again by hand, unless the context says otherwise. The action can write its
directory and everything in it, so that this process writes there before it runs and never after,
and reads it as ``untrusted``.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.builder.execute import results, sandbox
from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.execute.sandbox import LIMIT_S, OPENED, WORK, ActionDirectory, Sandbox
from kernforge.builder.plan.graph import Action, Input, Plan
from kernforge.errors import BuildError, IntegrityError, ToolchainError
from kernforge.store.local import Store
from kernforge.system import files, untrusted_tree
from kernforge.system.process import Completed, Runner

_STOPPED = 124
LOG = "kernforge-log.txt"
"""File of a result that holds what the program printed."""
_LIST_BYTES = 1 << 28
_NAME = re.compile(r"(?:\\.|[^\s\\])+")
_ESCAPED = re.compile(r"\\(.)|\$(\$)")
# The fingerprint of a compiler covers its own headers. What these others hold is no header, and
# may have no end.
_NOT_HEADERS = re.compile(r"^/(?:proc|sys|dev)/|/include/c\+\+/|/lib(?:32|64)?/gcc/")
_PLACEHOLDER = re.compile(r"%\{([\w.+-]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What actions are run with.

    Attributes:
        trees: real path of each toolchain tree by name.
        jobs: how many actions run at once.
        sandbox: how an action is kept to its inputs.
        keeps_failed: whether the directory of an action that failed stays, with a script in it that
            repeats the command.
        seconds: how long an action may take.
        compiles: whether an action may run; if not, its result must be in the store.
    """

    store: Store
    trees: Mapping[str, str]
    runner: Runner
    jobs: int
    sandbox: Sandbox = sandbox.OFF
    keeps_failed: bool = True
    seconds: float = LIMIT_S
    compiles: bool = True

    @property
    def work(self) -> Path:
        """Where an action runs whose own directory is taken."""
        return self.store.root / "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed; ``repeat`` is a shell line that runs it again by hand, or empty."""

    action: Action
    returncode: int
    output: str
    repeat: str

    def text(self, where: str = "") -> str:
        """What the program printed, what it was for, and how to see it again.

        ``where`` is the worker that ran it, empty for this machine.
        """
        on = f" on {where}" if where else ""
        lines = [
            f"{self.action.title}: exit status {self.returncode}{on}",
            f"for {', '.join(self.action.variants)}",
            self.output,
        ]
        if self.repeat:
            lines.append(f"repeat it by hand{on}:\n  {self.repeat}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How an action ended.

    Attributes:
        origin: ``"ran"``, ``"store"`` or ``"shared"``, where its result came from; or ``"failed"``.
        completed: the program's end, when one ran and went well.
        where: the worker that did it; empty for this machine.
    """

    origin: str
    completed: Completed | None = None
    failure: Failure | None = None
    where: str = ""


def run_action(action: Action, plan: Plan, context: ActionContext, *, threads: int = 1) -> Done:
    """Get one action's result into the context's store, whose other results it may read.

    ``threads`` is how many it may use; its result does not depend on them.

    Raises:
        ToolchainError: a header of this machine is not the one that the key names.
    """
    run = _ActionRun(action, plan, context, threads)
    try:
        context.store.tree(STORE_KIND, action.key, run.fill)
    except _FailedError as error:
        return Done(origin="failed", failure=error.failure)
    if run.completed:
        return Done(origin="ran", completed=run.completed)
    return Done(origin=origin(action.key, context.store))


def origin(key: str, store: Store) -> str:
    """Where a result came from that is in the store."""
    return "shared" if key in store.fetched else "store"


def resolve(text: str, paths: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return _PLACEHOLDER.sub(lambda match: paths[match[1]], text)


class _ActionRun:
    """Runs one action.

    Attributes:
        completed: how its program ended; None where its result was there.
    """

    def __init__(self, action: Action, plan: Plan, context: ActionContext, threads: int) -> None:
        self._action, self._plan, self._context = action, plan, context
        self._threads = threads
        self.completed: Completed | None = None

    def fill(self, tree: Path) -> None:
        """Make the action's result in an empty tree of the store."""
        action = self._action
        for path, digest in action.headers:
            if not Path(path).is_file() or files.sha256_file(Path(path)) != digest:
                raise ToolchainError(
                    f"{path} is not the header that {action.title} was planned with",
                    hint="build again; workers of a farm need the image of the build",
                )
        with self._directory() as directory:
            done = self._run_in(directory, tree)
            if log := (done.stdout + done.stderr).strip():
                files.write_new(tree / LOG, log + "\n")
            store = self._context.store
            how = {
                "isolated": self._context.sandbox.isolates,
                "fixed": directory.inside == sandbox.fixed_path(action.key),
                "outputs": {name: files.sha256_file(tree / name) for name in action.outputs},
            }
            results.write_history(
                tree,
                action.key,
                how,
                headers=_opened_headers(directory, known=dict(action.headers)),
                needed=[store.path(STORE_KIND, key) for key in sorted(action.needs)],
            )
            # The directory of an action that failed stays, so that its command can be repeated
            # there.
            files.remove_tree(directory.path)
        self.completed = done

    @contextlib.contextmanager
    def _directory(self) -> Iterator[ActionDirectory]:
        """A directory for one action: seen under the fixed path, or really there, or elsewhere."""
        action, trees = self._action, {n: self._context.trees[n] for n in self._action.trees}
        name = action.key[: sandbox.KEY_LENGTH]
        fixed = sandbox.fixed_path(action.key)
        for old in self._context.work.glob(f"{name}*"):
            files.remove_tree(old)
        if self._context.sandbox.isolates:
            # A new directory each time: an action may have made its last one hard to remove.
            path = files.new_dir(self._context.work, f"{name}-")
            yield self._place(ActionDirectory(path=path, inside=fixed, trees=trees))
            return
        with files.claimed(Path(fixed)) as ours:
            path = Path(fixed) if ours else self._context.work / name
            if not ours:
                files.make_new_dir(path)
            yield self._place(ActionDirectory(path=path, inside=str(path), trees=trees))

    def _place(self, directory: ActionDirectory) -> ActionDirectory:
        """Put the inputs into an action's empty directory, and its trees next to them."""
        files.write_new(directory.path / sandbox.MARK, "")
        for file in self._action.inputs:
            self._place_input(file, directory.work / file.path)
        # Line tables hold the time of a source.
        files.make_dir(directory.work)
        files.set_times(directory.work, sandbox.EPOCH)
        files.make_dir(directory.scratch)
        directory = replace(
            directory,
            fixed=sandbox.fixed_inputs(
                (file.path for file in self._action.inputs), self._action.outputs
            ),
        )
        for name, real in directory.mounted().items():
            seen = directory.path / "roots" / name
            if self._context.sandbox.isolates:
                files.make_dir(seen)
            else:
                files.symlink(real, seen)
        return directory

    def _run_in(self, directory: ActionDirectory, tree: Path) -> Completed:
        action = self._action
        paths = {name: directory.tree(name) for name in directory.trees} | {
            "threads": str(self._threads)
        }
        argv = tuple(resolve(part, paths) for part in action.argv)
        command = sandbox.command(self._context.sandbox, directory, argv, self._context.seconds)
        try:
            done = self._context.runner(command)
        except FileNotFoundError as error:
            raise BuildError(
                f"{error.filename or argv[0]} is not there any more",
                hint="it was removed while the build ran; build again",
            ) from error
        done = replace(done, returncode=sandbox.returncode(self._context.sandbox, done.returncode))
        problems = _take_outputs(action, directory, tree, done)
        if done.returncode != 0 or done.timed_out or problems:
            if not self._context.keeps_failed:
                files.remove_tree(directory.path)
                raise _FailedError(_failure(action, "", done, problems))
            # Its inputs are enough to repeat it. nvcc leaves hundreds of MB of scratch files, and
            # what a limit ended may have filled the disk up to that limit.
            gone = list(directory.path.iterdir()) if done.timed_out else [directory.scratch]
            for entry in gone:
                files.remove_tree(entry)
            if done.timed_out:
                self._place(directory)
            files.make_dir(directory.scratch)
            again = self._context.work / f"{action.key[: sandbox.KEY_LENGTH]}.sh"
            files.write_atomic(again, sandbox.by_hand(command), durable=False)
            raise _FailedError(_failure(action, f"sh {again}", done, problems))
        return done

    def _place_input(self, file: Input, path: Path) -> None:
        if file.action:
            # Not a hard link: the action could write through it into the store.
            results.copy_output(self._context.store, file.action, file.output, path)
        elif file.digest in self._plan.texts:
            files.write_new(path, self._plan.texts[file.digest])
        else:
            files.copy_file(self._plan.files[file.path], path)


def _opened_headers(directory: ActionDirectory, known: Iterable[str]) -> dict[str, str]:
    """Hex SHA-256 of each header of the machine that an action opened, by path.

    Args:
        known: paths of those that its key has already.

    Raises:
        IntegrityError: the action made something else of the list than a file.
    """
    try:
        data = untrusted_tree.read_bytes(directory.scratch, OPENED, limit=_LIST_BYTES)
    except FileNotFoundError:  # no compiler ran
        return {}
    trees = (os.path.realpath(real) for real in directory.mounted().values())
    own = tuple(f"{path}/" for path in (directory.inside, *trees))
    found = sorted(_paths(data.decode(errors="surrogateescape"), f"{directory.inside}/{WORK}"))
    digests = {
        path: results.sha256(path)
        for path in found
        if not path.startswith(own) and not _NOT_HEADERS.search(path) and path not in {*known}
    }
    # Compilers that append at the same time may cut a name; what is no file was none.
    return {path: digest for path, digest in digests.items() if digest}


def _paths(text: str, cwd: str) -> set[str]:
    """The paths in rules for make."""
    names = {_ESCAPED.sub(r"\1\2", name) for name in set(_NAME.findall(text))}
    return {posixpath.normpath(posixpath.join(cwd, name)) for name in names}


def _take_outputs(
    action: Action, directory: ActionDirectory, tree: Path, done: Completed
) -> list[str]:
    """Copy what an action made into a tree of ours; returns what is wrong with it."""
    problems: list[str] = []
    if done.timed_out:
        return problems
    for name in action.outputs:
        try:
            untrusted_tree.copy_out(directory.path, f"{WORK}/{name}", tree / name)
        except FileNotFoundError:
            problems.append(f"it did not write {name}")
        except IntegrityError as error:
            problems.append(error.message)
    return problems


def _failure(action: Action, repeat: str, done: Completed, problems: list[str]) -> Failure:
    output = (done.stdout + done.stderr).strip()
    if done.timed_out:
        output += f"\nended: it took longer than {done.wall_s:,.0f} s"
    elif done.returncode == 0:
        output += f"\n{action.argv[0]} succeeded, but {'; '.join(problems)}"
    if done.returncode < 0 and not done.timed_out:
        output += f"\nkilled by signal {-done.returncode}" + (
            ": out of memory? Try fewer: --jobs or MAX_JOBS" if done.returncode == -9 else ""  # noqa: PLR2004
        )
    # Not the status of a kill, which is tried once more where it was for memory.
    code = _STOPPED if done.timed_out else done.returncode
    return Failure(action=action, returncode=code, output=output.strip(), repeat=repeat)


class _FailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.action.title)
        self.failure = failure
