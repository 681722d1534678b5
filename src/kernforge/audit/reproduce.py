# SPDX-License-Identifier: Apache-2.0
"""Build a variant again from what it says of itself, and compare.

The sources are those of the commit in its statement, the toolchain that of the lock in it. The
build shares nothing with earlier ones but the toolchain's trees, which are keyed by their content.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge._version import __version__
from kernforge.artifact import directories, integrity
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.audit import compare
from kernforge.build import locking, provenance, steps, trees, workspace
from kernforge.build.execute import results
from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.loader.search import find_commit
from kernforge.project import targets as project_targets
from kernforge.registry.api import answering
from kernforge.registry.names import check_repo_id
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.process import Command, Completed, run
from kernforge.toolchain.provision import SHELF as _SHELF_OF_TOOLCHAINS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.audit.compare import Difference
    from kernforge.build.execute.outcome import Events
    from kernforge.build.execute.sandbox import Mode
    from kernforge.build.provenance import Origin, Statement
    from kernforge.project.api import Project
    from kernforge.registry.api import Registry
    from kernforge.toolchain.index.wheels import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A variant to build again.

    Attributes:
        path: its directory.
        fence: where its links may lead.
        files: its content by path.
        metadata: its document.
        statement: how it was made.
    """

    path: Path
    fence: Path
    files: dict[str, bytes]
    metadata: Metadata
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of building a variant again.

    Attributes:
        variant: its name.
        differences: none when it is identical.
        notes: what was not compared, and why.
    """

    variant: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to build again: the sandbox wanted, how many actions at once, and who is told."""

    mode: Mode
    jobs: int
    progress: Progress
    events: Events


def find(where: str, *, registry: Registry, version: str) -> tuple[Subject, ...]:
    """The variants in a directory, or of a published kernel.

    Args:
        where: a path or a repo id.
        registry: where repo ids are looked up.
        version: of a repo id; empty for the newest.

    Raises:
        UsageError: there is nothing of that name.
        IntegrityError: a variant is not what its own metadata promises, or says nothing of how
            it was made.
        RegistryError: the registry has no such kernel.
    """
    directory = directories.directory_of(where)
    if directory is not None:
        return tuple(_subject(path, path) for path in directories.variants(directory))
    source = answering(registry, check_repo_id(where))
    commit = find_commit(source, where, version, None)
    names = source.variants(where, commit)
    fence = source.fence(where)
    return tuple(_subject(source.fetch(where, commit, name), fence) for name in names)


def again(
    subjects: Sequence[Subject], *, source: Path | None, workplace: Path, manner: Manner
) -> tuple[Verdict, ...]:
    """Build variants again and compare.

    Args:
        subjects: the variants.
        source: a git checkout or a directory with the sources; None takes the repository that
            the artifact names.
        workplace: an empty directory for sources, results and variants.
        manner: how to build.

    Raises:
        ToolchainError: the host compiler here is not the one that was locked.
        UsageError: the sources cannot be had.
        BuildError: an action fails here.
    """
    return tuple(
        _again(subject, source, workplace / str(number), workplace / "home", manner)
        for number, subject in enumerate(subjects)
    )


def _again(
    subject: Subject, source: Path | None, workplace: Path, home: Path, manner: Manner
) -> Verdict:
    statement = subject.statement
    one = _project(subject, source, workplace / "source")
    bench = workspace.set_up(one, manner.progress)
    if statement.actions:
        here = locking.locked_compiler(bench)
        if wrong := statement.origin.lock.compiler.difference(here):
            raise ToolchainError(
                f"{statement.variant} was built with another compiler: {wrong}",
                hint="reproduce it where that compiler is, or name it in CXX",
            )
        if wrong := locking.other_python(statement.origin.lock):
            raise ToolchainError(
                f"{statement.variant} was built with {wrong}",
                hint="reproduce it with that Python",
            )
    bench = replace(bench, store=_fresh_store(bench.store, home))
    targets = project_targets.choose(bench.candidates, [statement.variant])
    lock = statement.origin.lock
    made = steps.make_plan(bench, targets, lock)
    archs = subject.metadata.archs
    if archs and set(archs) != set(made.artifacts[0].archs or ()):  # build --arch narrowed it
        only = [one.removesuffix("+PTX") for one in archs]
        made = steps.make_plan(bench, targets, lock, only=only)
    if made.sources_id != statement.origin.sources:
        raise UsageError(
            f"{one.root} does not hold the sources of {statement.variant}",
            hint=_what_was_built(statement),
        )
    outcome = steps.run_plan(
        bench,
        made,
        trees.fetch(bench, made, lock),
        lock,
        out=workplace / "out",
        jobs=manner.jobs,
        events=manner.events,
        isolation=steps.choose_sandbox(bench, manner.mode),
        start=replace(statement.origin, version=__version__),
    )
    steps.refuse_failures(made, outcome)
    found = _contents(outcome.variants[statement.variant], workplace / "out")
    made_here = results.made_for(made, made.artifacts[0], bench.store)
    return _verdict(subject, found, made_here)


def _verdict(
    subject: Subject, here: dict[str, bytes], made_here: tuple[provenance.Made, ...]
) -> Verdict:
    statement, there = subject.statement, subject.files
    notes = []
    again = provenance.read(here[provenance.FILE].decode())
    if again.isolation != statement.isolation:
        notes.append(
            f"isolation there: {statement.isolation}, here: {again.isolation}; what the "
            "documents say of it was not compared"
        )
        there, here = compare.without_isolation(there), compare.without_isolation(here)
    if statement.origin.version != __version__:
        notes.append(f"built by kernforge {statement.origin.version}, here by {__version__}")
    return Verdict(
        variant=statement.variant,
        differences=compare.differences(
            there, here, made_there=statement.actions, made_here=made_here
        ),
        notes=tuple(notes),
    )


def _subject(path: Path, fence: Path) -> Subject:
    found = _contents(path, fence)
    metadata = Metadata.from_json(found[FILE], source=str(path / FILE))
    if metadata.digest is None or provenance.FILE not in found:
        raise IntegrityError(
            f"{path} does not say how it was made: it has no {provenance.FILE}",
            hint="only what kernforge built can be built again by it",
        )
    integrity.verify_tree(path, metadata.digest, within=fence)
    text = found[provenance.FILE].decode()
    statement = provenance.read(text, source=str(path / provenance.FILE))
    return Subject(path=path, fence=fence, files=found, metadata=metadata, statement=statement)


def _contents(path: Path, fence: Path) -> dict[str, bytes]:
    found = integrity.tree_files(path, within=fence)
    signature = f"{FILE}.sigstore"
    return {name: real.read_bytes() for name, real in found.items() if name != signature}


def _fresh_store(old: Store, home: Path) -> Store:
    """A store without results that shares the toolchains of another."""
    shared = home / "store" / _SHELF_OF_TOOLCHAINS
    if not shared.is_symlink():
        files.make_dir(old.root / _SHELF_OF_TOOLCHAINS)
        files.symlink(str(old.root / _SHELF_OF_TOOLCHAINS), shared)
    return Store(home / "store")


def _project(subject: Subject, source: Path | None, into: Path) -> Project:
    """The project with the sources that a variant was made from.

    Raises:
        UsageError: they cannot be had.
    """
    origin = subject.statement.origin
    checkout = source and _checkout(source)
    if origin.git and not origin.git.dirty and (source is None or checkout):
        root = cloned(origin, checkout, into)
        return workspace.read_project(root / origin.folder)
    if source is None:
        raise UsageError(
            f"{subject.statement.variant} was not built from a commit alone",
            hint=_what_was_built(subject.statement),
        )
    # What no commit holds is taken as it lies there; its digest decides whether it is the same.
    return workspace.read_project(source)


def cloned(origin: Origin, checkout: Path | None, into: Path) -> Path:
    """A new checkout of the commit that a variant was built from.

    Args:
        origin: what it was built from.
        checkout: where to take it from; None is the repository that it names.
        into: the new directory.

    Raises:
        UsageError: it cannot be had.
    """
    git = origin.git
    url = str(checkout) if checkout else origin.url
    commit = git.commit if git else ""
    if not url:
        raise UsageError(
            "the artifact names no repository of its sources",
            hint=f"give --source a checkout that has commit {commit}",
        )
    url = url.removeprefix("git+")
    _git(f"{url} cannot be cloned", "clone", "--quiet", "--no-checkout", "--", url, str(into))
    problem = f"{url} has no commit {commit}"
    _git(problem, "-C", str(into), "checkout", "--quiet", "--detach", commit)
    return into


def _git(problem: str, *arguments: str) -> None:
    done = _run_git(*arguments)
    if done.returncode != 0:
        words = done.stderr.strip().splitlines()
        raise UsageError(f"{problem}: {words[-1] if words else 'git refuses'}", hint=_HINT)


def _run_git(*arguments: str) -> Completed:
    """What git says; a machine without git has no checkout."""
    try:
        return run(Command(argv=("git", *arguments)))
    except FileNotFoundError:
        return Completed(returncode=127, stdout="", stderr="git is not installed")


_HINT = "give --source a checkout that has the commit that the artifact was built from"


def _checkout(path: Path) -> Path | None:
    """Top of the git checkout that holds a directory."""
    done = _run_git("-C", str(path), "rev-parse", "--show-toplevel")
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _what_was_built(statement: Statement) -> str:
    git = statement.origin.git
    if git is None:
        return "give --source the directory that it was built from: it was no git checkout"
    if git.dirty:
        return (
            f"it was built from commit {git.commit} with changes that no commit holds: give "
            "--source a directory that has them"
        )
    return f"give --source a checkout that has commit {git.commit}"
