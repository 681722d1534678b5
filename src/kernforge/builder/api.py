# SPDX-License-Identifier: Apache-2.0
"""From a project to artifacts: lock, plan, isolate, fetch, run, lay out, check, trim.

This is the only place where these steps follow each other. Every caller hands in a
``BuildRequest`` and reads a ``BuildResult``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from kernforge._version import __version__
from kernforge.artifact.gpu import Arch
from kernforge.artifact.metadata import FILE
from kernforge.artifact.version import Version2
from kernforge.binary import elf, symbols
from kernforge.builder import executor, layout, planner, results, sandbox
from kernforge.builder.action import ActionContext
from kernforge.builder.executor import Outcome
from kernforge.builder.graph import Plan
from kernforge.builder.pool import LocalPool
from kernforge.builder.provenance import Origin
from kernforge.builder.results import STORE_KIND
from kernforge.builder.sandbox import Mode, Sandbox
from kernforge.builder.workspace import Workspace, ensure_lock, needs, toolchain_notes, tree_paths
from kernforge.check.finding import Finding
from kernforge.errors import BuildError, NetworkError, SourceError, StorageError, ToolchainError
from kernforge.manifest.model import Backend, Torch
from kernforge.project import units
from kernforge.project.api import Project, folder
from kernforge.project.targets import Target
from kernforge.project.units import Sources
from kernforge.source import compiler_advice, mistakes
from kernforge.store import eviction
from kernforge.system import digest, extras, files
from kernforge.system.machine import cores
from kernforge.system.process import Runner, run
from kernforge.system.progress import Progress
from kernforge.system.tables import counted, size
from kernforge.toolchain import lockfile, used
from kernforge.toolchain.lockfile import Lock

# Packages that the rules for machine code need.
_CHECKERS = ("abi3audit", "auditwheel", "elftools")
_CHECKED = "findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBuild:
    """A build that is planned, with what a user should know of project, lock and toolchain."""

    lock: Lock
    plan: Plan
    notes: tuple[str, ...]


EditPlan: TypeAlias = "Callable[[Workspace, PlannedBuild, ActionContext], Plan]"
MakePool: TypeAlias = "Callable[[Workspace, PlannedBuild, ActionContext], LocalPool]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build and how.

    Attributes:
        lock: ``"update"`` completes kernforge.lock, ``"frozen"`` refuses to, and a ``Lock`` is
            taken as it is.
        only: compute capabilities to narrow device code to, as ``"9.0"``; empty narrows nothing.
        untrusted: whether the project is untrusted input: ``"auto"`` means ``"required"`` then,
            and what was built is not imported to check it.
        out: directory of the variants, ``build`` in the project by default; an old variant of the
            same name is replaced as a whole.
        jobs: threads of all compilers together.
        pool: makes what runs actions on other machines; None runs them on this one.
        edited: gives the plan to run in the place of the planned one, for the same variants.
        origin: what the provenance names as built from, if not the sources in the workspace.
        every_source: whether what other backends compile is compiled, too, and not linked.
    """

    targets: tuple[Target, ...]
    events: Progress = field(default_factory=Progress)
    lock: Lock | Literal["update", "frozen"] = "update"
    only: tuple[str, ...] = ()
    sandbox: Mode = "auto"
    untrusted: bool = False
    out: Path | None = None
    jobs: int = field(default_factory=cores)
    pool: MakePool | None = None
    runner: Runner = run
    edited: EditPlan | None = None
    origin: Origin | None = None
    check: bool = False
    every_source: bool = False

    @property
    def isolation(self) -> Mode:
        """The sandbox mode; an untrusted project requires a sandbox."""
        return "required" if self.untrusted and self.sandbox == "auto" else self.sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """The result of a build.

    Attributes:
        variants: directory of each variant that was built, by name.
        uncompiled: of every source, those whose toolchain is unavailable, by backend.
    """

    plan: Plan
    outcome: Outcome
    variants: Mapping[str, Path]
    findings: tuple[Finding, ...]
    uncompiled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Names of the variants that could not be built, because an action failed."""
        names = (each.target.name for each in self.plan.artifacts)
        return tuple(name for name in names if name not in self.variants)

    def refuse_failures(self) -> None:
        """Raise an error if an action failed.

        Raises:
            BuildError: one did.
        """
        if self.outcome.failures:
            raise BuildError(
                f"{len(self.outcome.failures)} of {counted(len(self.plan.actions), 'action')} "
                f"failed, so {', '.join(self.left_out)} could not be built",
                hint=compiler_advice.advice(
                    "\n".join(each.output for each in self.outcome.failures)
                )
                or "the compiler's messages are above",
            )


def build_project(
    workspace: Workspace, request: BuildRequest, planned: PlannedBuild | None = None
) -> BuildResult:
    """Build variants of a project; ``planned`` is what ``plan_project`` made of the request.

    Raises:
        BuildError: the store is damaged; what a compiler refuses is in the result instead.
        IntegrityError: a file of the toolchain is not what the lock says.
        ManifestError: a section leaves nothing to compile, or a source is of an unknown kind.
        MissingPackageError: a module that the checks need is not installed.
        SourceError: a source has a mistake that is seen without a compiler.
        NetworkError: something is not in the store and no index can be reached.
        StorageError: the disk is full or read-only.
        ToolchainError: no index has what the lock lacks, or a sandbox is required and there is
            none.
        KeyboardInterrupt: passed on after every program was killed; nothing is left half-written.
    """
    out = request.out or _own_directory(workspace.project.root)
    planned = planned or plan_project(workspace, request)
    if request.check and planned.plan.actions:  # now, and not when everything is compiled
        extras.require(_CHECKERS, "the check of what is built", otherwise="build with --no-check")
    store, events = workspace.store, request.events
    for note in planned.notes:
        events.note(note)
    refusal = workspace.compiler.refusal
    results.pull(planned.plan, store, compiles=not refusal)
    isolation = _isolation(workspace, planned.plan, request)
    missing = [each for each in planned.plan.actions if not store.has(STORE_KIND, each.key)]
    # Where other machines run the actions, no tree is needed here.
    names = (
        set() if request.pool or refusal else {name for action in missing for name in action.trees}
    )
    trees = tree_paths(workspace, names, planned.lock)
    if received := workspace.wheels.received:
        events.note(f"{size(received)} came over the network")
    context = ActionContext(
        store=store,
        trees=trees,
        runner=request.runner,
        jobs=request.jobs,
        sandbox=isolation,
        refusal=refusal,
        library_path=workspace.library_path,
    )
    edited = None if refusal else request.edited
    plan = edited(workspace, planned, context) if edited else planned.plan
    pool = request.pool(workspace, planned, context) if request.pool else None
    outcome = executor.run_actions(plan, context, events, pool=pool)
    origin = request.origin or _origin(workspace, planned)
    variants = layout.lay_out_variants(plan, workspace, origin, planned.lock, out)
    findings = _findings(workspace, request, variants) if request.check else ()
    if store.made or store.fetched:
        eviction.keep(store, eviction.limit(workspace.environment))
    result = BuildResult(plan=plan, outcome=outcome, variants=variants, findings=findings)
    for target in _others(workspace, request):
        result = _compile_for(target, workspace, request, result)
    return result


def _others(workspace: Workspace, request: BuildRequest) -> tuple[Target, ...]:
    """Of each backend that a request for every source has no variant of, the last default one."""
    backends = {target.backend for target in request.targets}
    defaults = [each.target for each in workspace.candidates if each.target and each.default]
    compiled = {t.backend: t for t in defaults if not t.variant.is_noarch}
    others = [target for backend, target in compiled.items() if backend not in backends]
    return tuple(others) if request.every_source else ()


def _compile_for(
    target: Target, workspace: Workspace, request: BuildRequest, result: BuildResult
) -> BuildResult:
    """The result, with that of compiling for a target, for one GPU if the request names none."""
    asked = replace(request, targets=(target,), every_source=False, edited=None, check=False)
    try:
        planned = plan_project(workspace, asked)
        archs = [arch for action in planned.plan.actions for arch in action.archs]
        if archs and not request.only:
            planned = plan_project(workspace, replace(asked, only=(archs[0],)))
        actions = tuple(action for action in planned.plan.actions if action.source)
        compiled = replace(planned.plan, actions=actions, artifacts=())
        done = build_project(workspace, asked, replace(planned, plan=compiled)).outcome
    except (NetworkError, ToolchainError) as error:
        request.events.note(f"note: nothing is compiled for {target.backend}: {error.message}")
        sources = workspace.project.sources
        known = {path for t in request.targets for path in _texts(sources, t.backend, t.cuda)}
        paths = tuple(p for p in _texts(sources, target.backend, target.cuda) if p not in known)
        return replace(result, uncompiled={**result.uncompiled, target.backend: paths})
    plan, outcome = result.plan, result.outcome
    left_out = planned.plan.artifacts if done.failures else ()
    plan = replace(plan, actions=plan.actions + actions, artifacts=plan.artifacts + left_out)
    failures, spent = outcome.failures + done.failures, outcome.spent + done.spent
    return replace(result, plan=plan, outcome=replace(outcome, failures=failures, spent=spent))


def _own_directory(root: Path) -> Path:
    """Default directory of a project's variants.

    Raises:
        StorageError: it is a link, which would lead an untrusted build into another project.
    """
    path = root / "build"
    if path.is_symlink():
        raise StorageError(
            f"{path} is a symbolic link; variants are not written through links",
            hint="remove the link, or name another directory with --build-dir",
        )
    return path


def _findings(
    workspace: Workspace, request: BuildRequest, variants: Mapping[str, Path]
) -> tuple[Finding, ...]:
    """Findings of the variants that have not passed the same check before."""
    from kernforge.check.api import check_variant, rules  # noqa: PLC0415 - not for every build

    store, imports = workspace.store, not request.untrusted
    findings: list[Finding] = []
    for path in variants.values():
        # Its digest covers every other file.
        metadata = files.sha256_file(path / FILE)
        key = digest.key("checked", metadata=metadata, rules=rules(), imports=imports)
        if store.use(_CHECKED, key):
            continue
        checked = check_variant(path, run=run, python=sys.executable if imports else None)
        findings += checked
        if not any(finding.severity == "error" for finding in checked):
            store.tree(
                _CHECKED, key, lambda tree: files.write_new(tree / "checked", ""), shared=False
            )
    return with_linkage(findings, workspace.project.sources, variants, request.targets)


def plan_project(workspace: Workspace, request: BuildRequest) -> PlannedBuild:
    """Plan a build, which may write the project's lock; raises what ``build_project`` does."""
    lock, sources, notes = request.lock, workspace.project.sources, []
    refuse_mistakes(workspace.project, (*request.targets, *_others(workspace, request)))
    if isinstance(lock, str):
        wanted = needs(workspace, request.targets)
        lock, written = ensure_lock(workspace, wanted, lock)
        if not workspace.compiler.refusal:
            used.record(workspace.environment.home, lock)
        if written:
            path = workspace.project.root / lockfile.FILE_NAME
            notes = [f"wrote {path}: keep it in version control"]
    graph = planner.make(
        sources,
        request.targets,
        lock,
        static_libstdcxx=workspace.compiler.static_libstdcxx,
        only=tuple(map(Arch.parse, request.only)),
    )
    known = toolchain_notes(sources, request.targets, lock, every_source=request.every_source)
    notes += [f"note: {note}" for note in (*sources.manifest.notes, *known)]
    return PlannedBuild(lock=lock, plan=graph, notes=tuple(notes))


def _isolation(workspace: Workspace, plan: Plan, request: BuildRequest) -> Sandbox:
    """Choose the sandbox of a build; with one, results of unsandboxed actions are evicted.

    Nothing is tried when nothing is left to run. Workers of a farm isolate as far as each can, so
    that results made without are refused there only if a sandbox is required.
    """
    mode, store = request.isolation, workspace.store
    unisolated = results.unisolated([action.key for action in plan.actions], store)
    refused = workspace.compiler.refusal and mode != "required"
    if mode == "off" or not unisolated or refused:
        return replace(sandbox.OFF, wanted=mode)
    chosen = sandbox.probe(mode, workspace.compiler.path, run, workspace.library_path)
    if not chosen.isolates:
        request.events.note(f"note: actions run without a sandbox: {chosen.reason}")
    elif mode == "required" or request.pool is None:
        store.accepts = results.is_isolated_and_valid
        for key in unisolated:
            store.forget(STORE_KIND, key)
        if count := len(store.fetched.intersection(unisolated)):
            request.events.note(
                f"{count} results of the shared store were made without a sandbox: they are "
                "evicted and made again"
            )
    return chosen


def _origin(workspace: Workspace, planned: PlannedBuild) -> Origin:
    """Origin of a build, for its provenance."""
    project = workspace.project
    return Origin(
        sources=planned.plan.sources_id,
        version=__version__,
        url=project.manifest.general.source,
        git=project.git,
        folder=folder(project),
    )


# Rules that find a symbol that nothing defines.
_MISSING = ("unresolved", "import")


def refuse_mistakes(project: Project, targets: Sequence[Target]) -> None:
    """Refuse a project without a Python package, and sources that cannot make a kernel.

    Raises:
        SourceError: there are such sources; the message has a line for each mistake.
    """
    package = units.package_dir(project.manifest)
    if f"{package}__init__.py" not in project.files:
        folder_of_packages = package.partition("/")[0]
        others = [
            path.removesuffix("/__init__.py")
            for path in project.files
            if re.fullmatch(rf"{folder_of_packages}/[^/]+/__init__\.py", path)
        ]
        raise SourceError(
            f"there is no {package}__init__.py, which Python imports as the kernel "
            f"{project.manifest.general.name}",
            hint=f"rename {others[0]} to {package[:-1]}"
            if len(others) == 1
            else "write it: `from ._ops import ops`, and a function for each operator",
        )
    if not isinstance(project.manifest.framework, Torch):
        return
    compiled = {(t.backend, t.cuda) for t in targets if not t.variant.is_noarch}
    texts: dict[str, str] = {}
    for backend, cuda in compiled:
        texts |= _texts(project.sources, backend, cuda)
    sources = project.sources
    read = [
        (unit.path, unit.closure, sources.texts) for of in compiled for unit in sources.units(*of)
    ]
    python = {
        path: project.files[path].read_text(errors="replace")
        for path in sources.digests
        if path.startswith(package) and path.endswith(".py")
    }
    found = {*mistakes.of_units(read), *mistakes.of_operators(texts, sources.texts, python)}
    if found:
        wrong = sorted(found)
        raise SourceError("\n".join(map(str, wrong)), hint=mistakes.fixes(wrong))


def uncompiled_notes(files: Mapping[str, Sequence[str]]) -> list[str]:
    """Lines that say what was not compiled."""
    return [
        f"not compiled for {backend}: {', '.join((*paths, 'the parts of other files for it'))}; "
        "`kernforge build` compiles all"
        for backend, paths in files.items()
    ]


def with_linkage(
    findings: Sequence[Finding],
    sources: Sources,
    variants: Mapping[str, Path],
    targets: Sequence[Target],
) -> tuple[Finding, ...]:
    """The findings of a build, with those of functions that have ``extern "C"`` on one side only.

    Such a finding takes the place of those on the import and on undefined symbols of its variant,
    which have the same cause.
    """
    result = list(findings)
    for target in targets:
        path = variants.get(target.name)
        if path is None or not any(_is_of(f, path) and f.rule in _MISSING for f in result):
            continue
        texts = _texts(sources, target.backend, target.cuda)
        own = [
            Finding("linkage", f"{path.name}/{file.name}", message, hint)
            for file in sorted(path.glob("*.so"))
            for message, hint in symbols.one_sided(elf.parse(file.read_bytes()), texts)
        ]
        if own:
            result = [f for f in result if not _is_of(f, path) or f.rule not in _MISSING]
            result += own
    return tuple(result)


def _is_of(finding: Finding, variant: Path) -> bool:
    return finding.where.partition("/")[0] == variant.name


def _texts(sources: Sources, backend: Backend, cuda: Version2 | None) -> dict[str, str]:
    """Text of the project's own files that the units of a backend may read, in order."""
    paths = {path for unit in sources.units(backend, cuda) for path in unit.closure.files}
    return {path: sources.texts[path] for path in sorted(paths & sources.texts.keys())}
