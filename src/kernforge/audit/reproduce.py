# SPDX-License-Identifier: Apache-2.0
"""Build a variant again from what it says of itself, and compare.

The sources are those of the commit in its statement, the toolchain that of the lock in it. The
build shares nothing with earlier ones but the toolchain's trees, which are keyed by their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge._version import __version__
from kernforge.artifact import integrity
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.audit import compare
from kernforge.audit.about import KernelLocation
from kernforge.audit.compare import FileDifference
from kernforge.builder import api as build
from kernforge.builder import locking, provenance
from kernforge.builder import workspace as build_workspace
from kernforge.builder.api import BuildRequest
from kernforge.builder.execute import results
from kernforge.builder.execute.outcome import Events
from kernforge.builder.execute.results import ActionRecord
from kernforge.builder.execute.sandbox import Mode
from kernforge.builder.provenance import Statement
from kernforge.builder.workspace import Workspace
from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.project import git, targets
from kernforge.project.api import Project, read_project
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.toolchain.index.wheels import Progress
from kernforge.toolchain.provision import STORE_KIND as TOOLCHAINS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedVariant:
    """A variant that says how it was made.

    Attributes:
        files: its content by path.
        statement: how it was made.
    """

    files: dict[str, bytes]
    metadata: Metadata
    statement: Statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of building a variant again.

    Attributes:
        differences: none when it is identical.
        notes: what was not compared, and why.
    """

    variant: str
    differences: tuple[FileDifference, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproduceOptions:
    """How to build again.

    Attributes:
        sandbox: whether actions are kept to their inputs.
        jobs: threads of all compilers together.
        progress: listens to downloads.
        events: listens to the builds.
    """

    environment: Environment
    sandbox: Mode
    jobs: int
    progress: Progress
    events: Events


def read(location: KernelLocation) -> RecordedVariant:
    """A variant, and how it was made.

    Raises:
        IntegrityError: it is not what its own metadata promises, or says nothing of how it was
            made.
    """
    path = location.path
    contents = _contents(path, location.link_root)
    metadata = Metadata.from_json(contents[FILE], source=str(path / FILE))
    if metadata.digest is None or provenance.FILE not in contents:
        raise IntegrityError(
            f"{path} does not say how it was made: it has no {provenance.FILE}",
            hint="kernforge can build again only what it built",
        )
    integrity.verify_tree(path, metadata.digest, within=location.link_root)
    text = contents[provenance.FILE].decode()
    statement = provenance.read(text, source=str(path / provenance.FILE))
    return RecordedVariant(files=contents, metadata=metadata, statement=statement)


def again(
    variants: Sequence[RecordedVariant],
    *,
    source: Path | None,
    workplace: Path,
    options: ReproduceOptions,
) -> tuple[Verdict, ...]:
    """Build variants again and compare.

    Args:
        source: a git checkout or a directory with the sources; None takes the repository that
            the artifact names.
        workplace: an empty directory for sources, results and variants.

    Raises:
        ToolchainError: the host compiler here is not the one that was locked.
        UsageError: the sources cannot be had.
        BuildError: an action fails here.
    """
    return tuple(
        _again(variant, source, workplace / str(number), workplace / "home", options)
        for number, variant in enumerate(variants)
    )


def _again(
    variant: RecordedVariant,
    source: Path | None,
    workplace: Path,
    home: Path,
    options: ReproduceOptions,
) -> Verdict:
    statement = variant.statement
    project = _project(variant, source, workplace / "source")
    workspace = build_workspace.open_workspace(project, options.progress, options.environment)
    if statement.actions:
        _refuse_other_toolchain(workspace, statement)
    workspace = replace(workspace, store=_fresh_store(workspace.store, home))
    request = BuildRequest(
        targets=targets.choose(workspace.candidates, [statement.variant]),
        events=options.events,
        lock=statement.origin.lock,
        sandbox=options.sandbox,
        # Without a checkout of the user's, the sources are those that the artifact names.
        untrusted=source is None,
        out=workplace / "out",
        jobs=options.jobs,
        origin=replace(statement.origin, version=__version__),
    )
    planned = build.plan_project(workspace, request)
    archs = variant.metadata.archs or ()
    # --arch may have narrowed it, with PTX of its own or with that of the manifest.
    for only in ([arch.removesuffix("+PTX") for arch in archs], archs):
        if set(archs) in ({*(planned.plan.artifacts[0].archs or ())}, set()):
            break
        request = replace(request, only=tuple(only))
        planned = build.plan_project(workspace, request)
    if planned.plan.sources_id != statement.origin.sources:
        raise UsageError(
            f"{source or project.root} does not hold the sources of {statement.variant}",
            hint=_what_was_built(statement),
        )
    result = build.build_project(workspace, request, planned)
    result.refuse_failures()
    files_here = _contents(result.variants[statement.variant], workplace / "out")
    records = results.records(result.plan, result.plan.artifacts[0], workspace.store)
    return _verdict(variant, files_here, records)


def _refuse_other_toolchain(workspace: Workspace, statement: Statement) -> None:
    """Raise if the compiler or the Python that a variant was built with is not here.

    Raises:
        ToolchainError: one is not.
    """
    lock = statement.origin.lock
    here = locking.locked_compilers(workspace, lock.compilers)
    if difference := locking.other_compiler(lock, here):
        raise ToolchainError(
            f"{statement.variant} was built with {difference}",
            hint="reproduce it where that compiler is, or name it in CXX",
        )
    if difference := locking.other_python(lock):
        raise ToolchainError(
            f"{statement.variant} was built with {difference}", hint="reproduce it with that Python"
        )


def _verdict(
    variant: RecordedVariant, here: dict[str, bytes], records: tuple[ActionRecord, ...]
) -> Verdict:
    statement, there = variant.statement, variant.files
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
            there, here, made_there=statement.actions, made_here=records
        ),
        notes=tuple(notes),
    )


def _contents(path: Path, link_root: Path) -> dict[str, bytes]:
    paths = integrity.tree_files(path, within=link_root)
    return {name: real.read_bytes() for name, real in paths.items() if name != SIGNATURE}


def _fresh_store(old: Store, home: Path) -> Store:
    """A store without results that shares the toolchains of another."""
    shared = home / "store" / TOOLCHAINS
    if not shared.is_symlink():
        files.make_dir(old.root / TOOLCHAINS)
        files.symlink(str(old.root / TOOLCHAINS), shared)
    return Store(home / "store")


def _project(variant: RecordedVariant, source: Path | None, into: Path) -> Project:
    """The project with the sources that a variant was made from.

    Raises:
        UsageError: they cannot be had.
    """
    origin = variant.statement.origin
    checkout = source and git.find(source)
    if origin.git and not origin.git.dirty and (source is None or checkout):
        git.clone(str(checkout.top) if checkout else origin.url, origin.git.commit, into)
        return read_project(git.below(into, origin.folder))
    if source is None:
        raise UsageError(
            f"{variant.statement.variant} was not built from a commit alone",
            hint=_what_was_built(variant.statement),
        )
    # What no commit holds is taken as it is there; its digest decides whether it is the same.
    return read_project(source)


def _what_was_built(statement: Statement) -> str:
    recorded = statement.origin.git
    if recorded is None:
        return "give --source the directory that it was built from: it was not a git checkout"
    if recorded.dirty:
        return (
            f"it was built from commit {recorded.commit} with changes that no commit holds: give "
            "--source a directory that has them"
        )
    return f"give --source a checkout that has commit {recorded.commit}"
