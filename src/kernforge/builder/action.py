# SPDX-License-Identifier: Apache-2.0
"""Run one action, in a directory that holds its inputs and nothing else.

Its outputs enter the store by one rename. The directory of one that failed stays, and beside it a
script that runs it again by hand, unless the context says otherwise. The action can write its
directory and everything in it, so that this process writes there before it runs and never after,
and reads it as ``untrusted``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernforge.builder import results, sandbox, slim_headers
from kernforge.builder.graph import PLACEHOLDER, Action, Input, Plan
from kernforge.builder.results import STORE_KIND
from kernforge.builder.sandbox import LIMIT_S, OPENED, WORK, ActionDirectory, Sandbox
from kernforge.errors import BuildError, IntegrityError
from kernforge.store.local import Store
from kernforge.system import files, untrusted_tree
from kernforge.system.process import Completed, Runner

_log = logging.getLogger("kernforge")
_STOPPED = 124
LOG = "kernforge-log.txt"
"""File of a result with the output of its program."""
_LIST_BYTES = 1 << 28
_NAME = re.compile(r"(?:\\.|[^\s\\])+")
_ESCAPED = re.compile(r"\\(.)|\$(\$)")
# The fingerprint of a compiler covers its own headers. What these others hold is no header, and
# may have no end.
_NOT_HEADERS = re.compile(r"^/(?:proc|sys|dev)/|/include/c\+\+/|/lib(?:32|64)?/gcc/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionContext:
    """What actions are run with.

    Attributes:
        trees: real path of each toolchain tree by name.
        keeps_failed: whether the directory of an action that failed stays, with a script in it that
            repeats the command.
        refusal: why no action can run, as the end of a sentence: then the store has to have what
            is asked for. Empty otherwise.
        library_path: the ``LD_LIBRARY_PATH`` that compilers need; empty for most.
        whole_headers: sources that slim headers of torch did not serve; their edits skip them.
    """

    store: Store
    trees: Mapping[str, str]
    runner: Runner
    jobs: int
    sandbox: Sandbox = sandbox.OFF
    keeps_failed: bool = True
    seconds: float = LIMIT_S
    refusal: str = ""
    library_path: str = ""
    whole_headers: set[str] = field(default_factory=set)

    @property
    def work(self) -> Path:
        """Fallback directory of actions whose fixed directory is unavailable."""
        return self.store.root / "work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed; ``repeat`` is a shell line that runs it again by hand, or empty."""

    action: Action
    returncode: int
    output: str
    repeat: str

    def text(self, where: str = "") -> str:
        """The program's output, its variants, and the command that repeats it.

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
    """The end of an action.

    Attributes:
        completed: the end of its program; None for a failure, and for a result of the store.
        where: name of the worker that ran it; empty for this machine.
    """

    completed: Completed | None = None
    failure: Failure | None = None
    where: str = ""


def run_action(action: Action, plan: Plan, context: ActionContext, *, threads: int = 1) -> Done:
    """Get one action's result into the context's store, whose other results it may read.

    ``threads`` is how many it may use; its result does not depend on them.
    """
    completed: Completed | None = None

    def fill(tree: Path) -> None:
        nonlocal completed
        is_whole = action.source in context.whole_headers
        slim = None if is_whole else slim_headers.slim_action(action, plan, context.trees)
        if slim is None:
            completed = _run_into(tree, action, plan, context, threads)
            return
        try:
            completed = _run_into(tree, slim.action, slim.plan, context, threads)
        except _FailedError as error:
            if not slim.may_lack_header(error.failure.output):
                raise
            _log.info("%s: compiling again with all of torch's headers", action.title)
            done = _run_into(tree, action, plan, context, threads)
            context.whole_headers.add(action.source)
            first = error.completed
            completed = replace(
                done, wall_s=first.wall_s + done.wall_s, cpu_s=first.cpu_s + done.cpu_s
            )

    try:
        context.store.tree(STORE_KIND, action.key, fill)
    except _FailedError as error:
        return Done(failure=error.failure)
    return Done(completed=completed)


def _run_into(
    tree: Path, action: Action, plan: Plan, context: ActionContext, threads: int
) -> Completed:
    """Run an action, and fill an empty tree of the store with its result."""
    with _directory(action, plan, context) as directory:
        done = _run_in(directory, action, context, tree, threads)
        if log := (done.stdout + done.stderr).strip():
            files.write_new(tree / LOG, log + "\n")
        results.write_history(
            tree,
            action,
            isolated=context.sandbox.isolates,
            headers=_opened_headers(directory),
            needed=[context.store.path(STORE_KIND, key) for key in sorted(action.needs)],
        )
        files.remove_tree(directory.path)
    return done


def resolve(text: str, paths: Mapping[str, str]) -> str:
    """Put real paths in the place of ``%{root}``."""
    return PLACEHOLDER.sub(lambda match: paths[match[1]], text)


@contextlib.contextmanager
def _directory(action: Action, plan: Plan, context: ActionContext) -> Iterator[ActionDirectory]:
    """Make the directory of an action: mounted at the fixed path, at it, or a fallback."""
    name, fixed = action.key[: sandbox.KEY_LENGTH], sandbox.fixed_path(action.key)
    for old in context.work.glob(f"{name}*"):
        files.remove_tree(old)
    with contextlib.ExitStack() as stack:
        if context.sandbox.isolates:
            # A new directory each time: an action may have made its last one hard to remove.
            path = files.new_dir(context.work, f"{name}-")
        elif stack.enter_context(files.claimed(Path(fixed))):
            path = Path(fixed)
        else:
            path = files.new_dir(context.work, f"{name}-")
        directory = ActionDirectory(
            path=path,
            inside=fixed if context.sandbox.isolates else str(path),
            trees={name: context.trees[name] for name in action.trees},
            fixed=sandbox.fixed_inputs((file.path for file in action.inputs), action.outputs),
        )
        for file in action.inputs:
            _copy_input(file, directory.work / file.path, plan, context)
        files.make_dir(directory.work)
        files.set_times(directory.work, sandbox.EPOCH)  # DWARF line tables record source mtimes
        files.make_dir(directory.scratch)
        for name, real in directory.mounted().items():
            seen = directory.path / "roots" / name
            if context.sandbox.isolates:
                files.make_dir(seen)
            else:
                files.symlink(real, seen)
        yield directory


def _copy_input(file: Input, path: Path, plan: Plan, context: ActionContext) -> None:
    if file.action:
        # Not a hard link: the action could write through it into the store.
        results.copy_output(context.store, file.action, file.output, path)
    elif file.digest in plan.texts:
        files.write_new(path, plan.texts[file.digest])
    else:
        files.copy_file(plan.files[file.path], path)


def _run_in(
    directory: ActionDirectory, action: Action, context: ActionContext, tree: Path, threads: int
) -> Completed:
    """Run an action in its directory, and copy its outputs into an empty tree of the store."""
    paths = {name: directory.tree(name) for name in directory.trees}
    paths |= {"threads": str(threads), "here": f"{directory.inside}/{WORK}"}
    argv = tuple(resolve(part, paths) for part in action.argv)
    command = sandbox.command(
        context.sandbox, directory, argv, context.seconds, context.library_path
    )
    try:
        done = context.runner(command)
    except FileNotFoundError as error:
        raise BuildError(
            f"{error.filename or argv[0]} was removed while the build ran",
            hint="build again",
        ) from error
    succeeded = done.returncode == 0 and not done.timed_out
    problems = _take_outputs(action, directory, tree) if succeeded else []
    if succeeded and not problems:
        return done
    repeat = ""
    if context.keeps_failed and not done.timed_out:
        # Its inputs are enough to repeat it; nvcc leaves hundreds of MB of scratch files.
        files.remove_tree(directory.scratch)
        files.make_dir(directory.scratch)
        script = context.work / f"{action.key[: sandbox.KEY_LENGTH]}.sh"
        files.write_atomic(script, sandbox.by_hand(command), durable=False)
        repeat = f"sh {script}"
    else:
        files.remove_tree(directory.path)
    raise _FailedError(_failure(action, repeat, done, problems), done)


def _opened_headers(directory: ActionDirectory) -> dict[str, str]:
    """Hex SHA-256 of each header of the machine that an action opened, by path."""
    try:
        data = untrusted_tree.read_bytes(directory.scratch, OPENED, limit=_LIST_BYTES)
    except FileNotFoundError:  # no compiler ran
        return {}
    trees = (os.path.realpath(real) for real in directory.mounted().values())
    own = tuple(f"{path}/" for path in (directory.inside, *trees))
    paths = sorted(_paths(data.decode(errors="surrogateescape"), f"{directory.inside}/{WORK}"))
    digests = {
        path: results.sha256(path)
        for path in paths
        if not path.startswith(own) and not _NOT_HEADERS.search(path)
    }
    # Concurrent appends may truncate a name; a name of no file is skipped.
    return {path: digest for path, digest in digests.items() if digest}


def _paths(text: str, cwd: str) -> set[str]:
    """The paths in rules for make."""
    names = {_ESCAPED.sub(r"\1\2", name) for name in set(_NAME.findall(text))}
    return {posixpath.normpath(posixpath.join(cwd, name)) for name in names}


def _take_outputs(action: Action, directory: ActionDirectory, tree: Path) -> list[str]:
    """Copy outputs into a tree of the store; returns why some cannot be copied."""
    problems: list[str] = []
    for name in action.outputs:
        try:
            untrusted_tree.copy_out(directory.path, f"{WORK}/{name}", tree / name)
        except FileNotFoundError:
            problems.append(f"did not write {name}")
        except IntegrityError as error:
            problems.append(error.message)
    return problems


def _failure(action: Action, repeat: str, done: Completed, problems: list[str]) -> Failure:
    output = (done.stdout + done.stderr).strip()
    if done.timed_out:
        output += f"\ntimed out after {done.wall_s:,.0f} s"
    elif done.returncode == 0:
        output += f"\n{action.argv[0]} succeeded, but: {'; '.join(problems)}"
    if done.returncode < 0 and not done.timed_out:
        output += f"\nkilled by signal {-done.returncode}" + (
            ": out of memory? Try fewer: --jobs or MAX_JOBS" if done.returncode == -9 else ""  # noqa: PLR2004
        )
    # Not the status of a kill, which is tried once more where it was for memory.
    code = _STOPPED if done.timed_out else done.returncode
    return Failure(action=action, returncode=code, output=output.strip(), repeat=repeat)


class _FailedError(Exception):
    def __init__(self, failure: Failure, completed: Completed) -> None:
        super().__init__(failure.action.title)
        self.failure, self.completed = failure, completed
