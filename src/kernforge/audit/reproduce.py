# SPDX-License-Identifier: Apache-2.0
"""Build a variant again from its provenance statement, and compare byte for byte.

The sources are those of the commit in its statement, the toolchain that of the lock in it. The
build shares nothing with earlier ones but the toolchain's trees, which are keyed by their content.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge._version import __version__
from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.audit.describe import VariantLocation
from kernforge.builder import api as build, provenance, results, workspace as build_workspace
from kernforge.builder.api import BuildRequest
from kernforge.builder.provenance import Statement
from kernforge.builder.results import ActionRecord
from kernforge.builder.workspace import lock_difference
from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.project import git, targets
from kernforge.project.api import Project, read_project
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.toolchain.provision import STORE_KIND as TOOLCHAINS


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The comparison of a variant with its rebuild.

    Attributes:
        differences: the reason for each file that differs, above all the first action whose
            result differs.
    """

    variant: str
    differences: Mapping[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.variant}: {'DIFFERENT' if self.differences else 'identical'}"]
        lines += [f"  {file}: {reason}" for file, reason in self.differences.items()]
        return "\n".join((*lines, *(f"  note: {note}" for note in self.notes)))


def rebuild(
    location: VariantLocation,
    source: Path | None,
    workplace: Path,
    environment: Environment,
    console: Console,
) -> Verdict:
    """Build a variant again and compare.

    Args:
        source: a git checkout or a directory with the sources; None takes the repository that
            the statement names.
        workplace: a directory for this variant's sources and files; variants whose workplaces
            have one parent share their results.
    """
    files_there, metadata, statement = _read(location)
    project = _project(statement, source, workplace / "source")
    workspace = build_workspace.open_workspace(project, console, environment)
    lock = statement.lock
    names = {*lock.compilers, *lock.trees} if statement.actions else set()
    if difference := lock_difference(workspace, lock, names):
        raise ToolchainError(
            f"{statement.variant} was built with {difference}",
            hint="reproduce it on a machine with that compiler, or name the compiler in CXX",
        )
    workspace = replace(workspace, store=_fresh_store(workspace.store, workplace.parent / "home"))
    request = BuildRequest(
        targets=targets.choose(workspace.candidates, [statement.variant]),
        events=console,
        lock=lock,
        # Without the user's own checkout, the sources are untrusted input.
        untrusted=source is None,
        out=workplace / "out",
        origin=replace(statement.origin, version=__version__),
    )
    planned = build.plan_project(workspace, request)
    archs = metadata.archs or ()
    # --arch may have narrowed it, with PTX of its own or with that of the manifest.
    for only in ([arch.removesuffix("+PTX") for arch in archs], archs):
        if set(archs) in ({*(planned.plan.artifacts[0].archs or ())}, set()):
            break
        request = replace(request, only=tuple(only))
        planned = build.plan_project(workspace, request)
    if planned.plan.sources_id != statement.origin.sources:
        raise UsageError(
            f"{source or project.root} does not hold the sources of {statement.variant}",
            hint=_source_hint(statement),
        )
    result = build.build_project(workspace, request, planned)
    result.refuse_failures()
    files_here = _contents(BuiltVariant.read(result.variants[statement.variant]))
    records = results.records(result.plan, result.plan.artifacts[0], workspace.store)
    return _verdict(statement, files_there, files_here, records)


def _read(location: VariantLocation) -> tuple[dict[str, bytes], Metadata, Statement]:
    """The verified files of a variant by path, its metadata and its statement."""
    built = BuiltVariant.read(location.path, location.link_root)
    contents = _contents(built)
    if built.metadata.digest is None or provenance.FILE not in contents:
        raise IntegrityError(
            f"{built.path} has no digest or no {provenance.FILE}, so it cannot be built again",
            hint="build and publish the kernel again with `kernforge build`",
        )
    text = contents[provenance.FILE].decode()
    return contents, built.metadata, provenance.read(text, source=str(built.path))


def _verdict(
    statement: Statement,
    there: Mapping[str, bytes],
    here: Mapping[str, bytes],
    records: tuple[ActionRecord, ...],
) -> Verdict:
    notes = []
    isolation = statement.sandbox["isolation"]
    isolation_here = provenance.read(here[provenance.FILE].decode()).sandbox["isolation"]
    if isolation_here != isolation:
        notes.append(
            f"isolation there: {isolation}, here: {isolation_here}; the records of it were not "
            "compared"
        )
        there, here = _without_isolation(there), _without_isolation(here)
    if statement.origin.version != __version__:
        notes.append(f"built by kernforge {statement.origin.version}, here by {__version__}")
    return Verdict(
        variant=statement.variant,
        differences=dict(_differences(statement, there, here, records)),
        notes=tuple(notes),
    )


def _differences(
    statement: Statement,
    there: Mapping[str, bytes],
    here: Mapping[str, bytes],
    records: Sequence[ActionRecord],
) -> Iterator[tuple[str, str]]:
    """The files that differ, with a reason; shared objects come first."""
    for name in sorted({*there, *here}, key=lambda name: (not name.endswith(".so"), name)):
        if there.get(name) == here.get(name):
            continue
        reason = "no action writes these bytes"
        if name not in there or name not in here:
            reason = f"it is only in the {'artifact' if name in there else 'new build'}"
        elif name.endswith(".so"):
            reason = first_difference(statement.actions, records)
        elif name in {FILE, provenance.FILE}:
            reason = "it describes the build"
        yield name, reason


def _without_isolation(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a variant without their records of the sandbox in which it was built."""
    changed = dict(files)
    statement = json.loads(files[provenance.FILE])
    del statement["predicate"]["buildDefinition"]["internalParameters"]["sandbox"]
    metadata = json.loads(files[FILE])
    del metadata["digest"]["files"][provenance.FILE]
    for name, document in ((provenance.FILE, statement), (FILE, metadata)):
        changed[name] = json.dumps(document, indent=1, sort_keys=True).encode()
    return changed


def first_difference(there: Sequence[ActionRecord], here: Sequence[ActionRecord]) -> str:
    """The first action that differs, and how."""
    actions_here = {action.key: action for action in here}
    for action in there:
        action_here = actions_here.get(action.key)
        if action_here is None:
            argv = " ".join(action.argv)
            return f"{action.title!r} has another plan here: the artifact has {argv}"
        changed = [n for n, d in action.outputs.items() if action_here.outputs.get(n) != d]
        if changed:
            return f"{action.title!r} made a different {', '.join(changed)} here"
    return "every action gave the same result, so it was changed after it was linked"


def _contents(built: BuiltVariant) -> dict[str, bytes]:
    paths = built.verified_files()
    return {name: path.read_bytes() for name, path in paths.items() if name != SIGNATURE}


def _fresh_store(old: Store, home: Path) -> Store:
    """A store without results that shares the toolchains of another."""
    shared = home / "store" / TOOLCHAINS
    if not shared.is_symlink():
        files.make_dir(old.root / TOOLCHAINS)
        files.symlink(str(old.root / TOOLCHAINS), shared)
    return Store(home / "store")


def _project(statement: Statement, source: Path | None, into: Path) -> Project:
    """The project with the sources of a variant."""
    origin = statement.origin
    checkout = source and git.find(source)
    if origin.git and not origin.git.dirty and (source is None or checkout):
        git.clone(str(checkout.top) if checkout else origin.url, origin.git.commit, into)
        return read_project(git.below(into, origin.folder))
    if source is None:
        raise UsageError(
            f"{statement.variant} was not built from a commit alone",
            hint=_source_hint(statement),
        )
    # Uncommitted sources are read as they are; their digest decides whether they are the same.
    return read_project(source)


def _source_hint(statement: Statement) -> str:
    recorded = statement.origin.git
    commit = f"commit {recorded.commit}" if recorded else "a directory that was no git checkout"
    changes = " with changes that no commit holds" if recorded and recorded.dirty else ""
    return f"it was built from {commit}{changes}: give --source a directory that has this"
