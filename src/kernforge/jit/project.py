# SPDX-License-Identifier: Apache-2.0
"""Build a kernel project for this process's torch and GPU, and load it.

The plan is that of ``kernforge build``. For an edit of device code, only that code is compiled, as
for an edit of sources (``device.swap``): its object replaces nvcc's in the plan, and all that comes
after is as for any build.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING

from kernforge.artifact.variant import Variant
from kernforge.binary.symbols import demangled
from kernforge.build import api as build
from kernforge.build import from_source, locking
from kernforge.build import workspace as build_workspace
from kernforge.build.api import BuildRequest
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import BuildError, NetworkError, ToolchainError
from kernforge.jit import advice, machine, make
from kernforge.jit.device import nvcc_stages
from kernforge.jit.device.project import replace_edited
from kernforge.jit.files import stamp
from kernforge.jit.session import CachedProject
from kernforge.loader import host
from kernforge.loader.api import get_local_kernel
from kernforge.manifest.model import TvmFfi
from kernforge.project import api as project_api
from kernforge.system.console import Console
from kernforge.toolchain import lockfile
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kernforge.build.workspace import Workspace
    from kernforge.jit.session import JitSession
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.system.environment import Environment
    from kernforge.toolchain.local_parts import LocalParts, LocalPartsOptions

_log = logging.getLogger("kernforge")
_FOR_CPU = "start the process with no GPU to be seen (CUDA_VISIBLE_DEVICES=)"


def load_project(session: JitSession, directory: Path, *, verbose: bool = False) -> ModuleType:
    """Build the project that holds a directory, and import it, unless it is loaded and unchanged.

    Args:
        directory: the project's root, or a directory in it.
        verbose: say what is compiled, on stderr.

    Raises:
        BuildError: a compiler failed, and the message is what it wrote; or a function is called that
            no source defines.
        ManifestError: its build.toml is wrong.
        NoVariantError: it has no variant for this process.
        UsageError: there is no project, or no torch.
    """
    key = (directory.absolute(), session.environment.kernforge_home)
    cached = session.projects.get(key)
    if cached and _is_current(cached, session):
        return cached.module
    root = project_api.find(directory)
    with session.alone("project", root):
        cached = session.projects.get(key)
        if not cached or not _is_current(cached, session):
            cached = session.projects[key] = _load_anew(session, root, verbose=verbose)
    return cached.module


def _is_current(cached: CachedProject, session: JitSession) -> bool:
    """Whether nothing has changed since a project was loaded."""
    try:
        same = all(os.stat(d).st_mtime_ns == when for d, when in cached.listing.items())  # noqa: PTH116
    except FileNotFoundError:
        return False
    same = same and session.device.is_valid(cached.link)
    return same and all(stamp(path) == old for path, old in cached.stamps.items())


def _load_anew(session: JitSession, root: Path, *, verbose: bool) -> CachedProject:
    project = project_api.read_project(root)
    if not isinstance(project.manifest.framework, TvmFfi):
        machine.import_torch()  # without it, the error would be that no variant fits
    stamps = {str(path): stamp(str(path)) for path in project.files.values()}
    folders = {str(path.parent) for path in project.files.values()}
    listing = {folder: os.stat(folder).st_mtime_ns for folder in folders}  # noqa: PTH116
    lock = str(root / lockfile.FILE_NAME)
    lock_before = stamp(lock)
    # Copies of a project with the same sources are laid out in the same directory.
    with session.alone("project name", project.manifest.general.name):
        variant, link = _build_variant(session, project, Console(quiet=not verbose, failures=False))
        module = _import_variant(project, variant)
    if stamp(lock) != lock_before:  # it was written just now
        listing[str(root)] = os.stat(root).st_mtime_ns  # noqa: PTH116
    return CachedProject(stamps=stamps, listing=listing, module=module, link=link)


def _import_variant(project: Project, variant: Path) -> ModuleType:
    try:
        return get_local_kernel(variant)
    except ImportError as error:
        if undefined := _undefined_error(project, variant, str(error)):
            raise undefined from error
        raise


def _undefined_error(project: Project, variant: Path, message: str) -> BuildError | None:
    """Which function of a project is undefined; None if that is not what is wrong."""
    symbol = advice.missing_symbol(message)
    if not symbol:
        return None
    backend = Variant.parse(variant.name).backend.name
    tables = [table for table in project.manifest.kernels.values() if table.backend == backend]
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in project.files.items()
        if name.endswith(advice.READ)
    }
    kernels = [path for table in tables for path in table.src]
    return advice.undefined_error(project.manifest.general.name, demangled(symbol), texts, kernels)


# -- building ------------------------------------------------------------------------------


def _build_variant(session: JitSession, project: Project, console: Console) -> tuple[Path, Path]:
    """The project's variant for this process and its module in the store, built if need be.

    With what the lock names, or, if that is not available, with the headers of this machine's torch
    and the compilers of the installed toolkit.
    """
    compiler = machine.find_compiler(session)
    # Thousands of files say what this machine lends: they are read once for a manifest.
    key = (project.root, project.manifest.content)

    def attempt(
        options: LocalPartsOptions, local_parts: LocalParts | None = None
    ) -> tuple[Path, Path]:
        workspace = build_workspace.open_workspace(
            project,
            console,
            session.environment,
            options,
            cxx=compiler,
            local_parts=local_parts,
        )
        built = _build(session, workspace, console)
        session.local_parts[key] = workspace.local_parts
        return built

    if local_parts := session.local_parts.get(key):
        return attempt(NO_LOCAL_PARTS, local_parts)
    try:
        return attempt(_lent_parts(project, session.environment))
    except (NetworkError, ToolchainError) as error:
        options = from_source.lent_parts(host.probe_to_load(), session.environment, error)
        _log.warning("%s; %s", error.message, from_source.LENT)
    return attempt(options)


def _lent_parts(project: Project, environment: Environment) -> LocalPartsOptions:
    """What this machine lent to the project's lock when that was written."""
    lock = build_workspace.read_lock(project.root)
    named = any(name.startswith("torch-") for name in lock.headers) if lock else False
    if not named:
        return NO_LOCAL_PARTS
    why = ToolchainError("the lock names an installed torch")
    return from_source.lent_parts(host.probe_to_load(), environment, why)


def _build(session: JitSession, workspace: Workspace, console: Console) -> tuple[Path, Path]:
    """The variant's directory, and its module in the store."""
    root, process = workspace.project.root, host.probe_to_load()
    target = from_source.fitting_target(workspace, process, str(root), for_cpu=_FOR_CPU)
    capability = host.with_device(process).capability
    known = session.project_locks.get(root)
    request = BuildRequest(
        targets=(target,),
        events=console,
        lock=known[1] if known and known[0] == _lock_state(workspace, target) else "update",
        only=(str(capability),) if capability and target.cuda else (),
        sandbox="off",
        jobs=machine.jobs(session.environment),
        runner=nvcc_stages.run_stages,
        edited=functools.partial(replace_edited, session.device),
        trim_every_s=make.TRIM_EVERY_S,
    )
    planned = build.plan_project(workspace, request)
    session.project_locks[root] = (_lock_state(workspace, target), planned.lock)
    # A module that was loaded and is refuted since has taken the op namespace.
    modules = session.project_modules.setdefault(planned.plan.sources_id, set())
    if attempt := sum(not session.device.is_valid(module) for module in modules):
        request = replace(request, lock=planned.lock, attempt=attempt)
        planned = build.plan_project(workspace, request)
    (artifact,) = planned.plan.artifacts
    # A directory of its own for each state of the sources: what a process has loaded stays.
    name = f"{artifact.ops_name}-{planned.plan.sources_id[:16]}"
    request = replace(request, out=session.environment.home / "jit" / "projects" / name)
    result = build.build_project(workspace, request, planned)
    if failures := result.outcome.failures:
        texts = "\n".join(failure.text() for failure in failures)
        raise BuildError(f"{target.name} could not be built\n{texts}")
    directory = result.variants[target.name]
    (artifact,) = result.plan.artifacts
    if artifact.extension is None:
        return directory, directory
    link = workspace.store.path(STORE_KIND, artifact.extension) / f"{artifact.ops_name}.abi3.so"
    modules.add(link)
    return directory, link


def _lock_state(workspace: Workspace, target: Target) -> tuple[object, ...]:
    """What the lock for a target depends on; to make it again asks the compiler for its parts."""
    lock = stamp(str(workspace.project.root / lockfile.FILE_NAME))
    return locking.needs(workspace, (target,)), lock, workspace.compiler, workspace.local_parts
