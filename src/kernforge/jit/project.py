# SPDX-License-Identifier: Apache-2.0
"""Build a kernel project for this process's torch and GPU, and load it.

The plan is that of ``kernforge build``. An edit of device code alone is compiled as that of sources
is (``jit_swap``): its object takes the place of nvcc's in the plan, and all that comes after is as ever.
"""

from __future__ import annotations

import functools
import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge.artifact.variant import Variant
from kernforge.binary.symbols import demangled
from kernforge.build import api as build
from kernforge.build import from_source, locking
from kernforge.build import workspace as build_workspace
from kernforge.build.api import BuildRequest
from kernforge.build.execute.results import STORE_KIND
from kernforge.errors import BuildError, NetworkError, ToolchainError
from kernforge.jit import build_module, files, machine, undefined
from kernforge.jit.device import nvcc_stages, swap
from kernforge.jit.device import project as device_project
from kernforge.loader import host
from kernforge.loader.api import get_local_kernel
from kernforge.manifest.model import TvmFfi
from kernforge.project.api import read_project
from kernforge.system.console import Report
from kernforge.system.paths import home
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, lockfile
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kernforge.build.workspace import Workspace
    from kernforge.jit.files import Stamp
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.local_parts import LocalParts, LocalPartsOptions
    from kernforge.toolchain.lockfile import Lock


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A project that is loaded: its files and directories as they were, its package.

    ``link`` is the module as the store has it.
    """

    stamps: dict[str, Stamp | None]
    listing: dict[str, int]
    module: ModuleType
    link: Path


_log = logging.getLogger("kernforge")
_known: dict[tuple[Path, str | None], _Known] = {}
# What this machine lends to a project of this manifest: thousands of files say what it is.
_own: dict[tuple[Path, str], LocalParts] = {}
_locks: dict[Path, tuple[object, Lock]] = {}
# Modules in the store that were made of sources of this id and loaded.
_loaded: dict[str, set[Path]] = {}


def load_project(directory: Path, *, verbose: bool = False) -> ModuleType:
    """Build the project that holds a directory, and import it; one that is unchanged is returned.

    Args:
        directory: the project's, or one below.
        verbose: say what is compiled, on stderr.

    Raises:
        BuildError: a compiler failed, with its words; or a function is called that no source defines.
        ManifestError: its build.toml is wrong.
        NoVariantError: it has no variant for this process.
        UsageError: there is no project, or no torch.
    """
    key = (directory.absolute(), os.environ.get("KERNFORGE_HOME"))
    known = _known.get(key)
    if known and _unchanged(known):
        return known.module
    project = read_project(directory)
    if not isinstance(project.manifest.framework, TvmFfi):
        machine.import_torch()  # or all that is told is that no variant fits
    stamps = {str(path): files.stamp(str(path)) for path in project.files.values()}
    folders = {str(path.parent) for path in project.files.values()}
    listing = {folder: os.stat(folder).st_mtime_ns for folder in folders}  # noqa: PTH116
    lock = files.stamp(str(project.root / lockfile.FILE_NAME))
    path, link = _build(project, Report(quiet=not verbose, failures=False))
    if files.stamp(str(project.root / lockfile.FILE_NAME)) != lock:  # it was written just now
        listing[str(project.root)] = os.stat(project.root).st_mtime_ns  # noqa: PTH116
    try:
        module = get_local_kernel(path)
    except ImportError as error:
        if told := _undefined(project, path, str(error)):
            raise told from error
        raise
    _known[key] = _Known(stamps=stamps, listing=listing, module=module, link=link)
    return module


def _undefined(project: Project, variant: Path, words: str) -> BuildError | None:
    """What a module of a project misses that its binding calls; None if that is not what is wrong."""
    symbol = undefined.symbol(words)
    if not symbol:
        return None
    backend = Variant.parse(variant.name).backend.name
    tables = [table for table in project.manifest.kernels.values() if table.backend == backend]
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in project.files.items()
        if name.endswith(undefined.READ)
    }
    return undefined.error(
        project.manifest.general.name,
        demangled(symbol),
        texts,
        [path for table in tables for path in table.src],
    )


def _unchanged(known: _Known) -> bool:
    try:
        same = all(os.stat(f).st_mtime_ns == when for f, when in known.listing.items())  # noqa: PTH116
    except FileNotFoundError:
        return False
    same = same and swap.stands(known.link)
    return same and all(files.stamp(path) == old for path, old in known.stamps.items())


def _build(project: Project, console: Report) -> tuple[Path, Path]:
    """The project's variant for this process and its module in the store, built if need be.

    What the lock names goes first. Where it cannot be had, this machine's own torch lends its headers
    and the installed toolkit its compilers.
    """
    cxx = _compiler(os.environ.get("CXX"), os.environ.get("PATH"))

    def attempt(brought: LocalPartsOptions, own: LocalParts | None = None) -> tuple[Path, Path]:
        workspace = build_workspace.open_workspace(project, console, brought, cxx=cxx, own=own)
        found = _build_in(workspace, console)
        _own[key] = workspace.own
        return found

    key = (project.root, project.manifest.content)
    if own := _own.get(key):
        return attempt(NO_LOCAL_PARTS, own)
    try:
        return attempt(_lent(project))
    except (NetworkError, ToolchainError) as error:
        parts = from_source.lent_parts(host.probe(), error)
        _log.warning("%s; %s", error.message, from_source.LENT)
    return attempt(parts)


def _lent(project: Project) -> LocalPartsOptions:
    """What this machine lent to the project's lock when that was written."""
    lock = build_workspace.read_lock(project.root)
    named = any(name.startswith("torch-") for name in lock.headers) if lock else False
    if not named:
        return NO_LOCAL_PARTS
    return from_source.lent_parts(host.probe(), ToolchainError("the lock names an installed torch"))


@functools.cache
def _compiler(named: str | None, path: str | None) -> Compiler:
    """The C++ compiler for values of ``CXX`` and ``PATH``; to ask it takes as long as a link."""
    del named, path
    return host_compiler.find(os.environ, run)


def _build_in(workspace: Workspace, console: Report) -> tuple[Path, Path]:
    """The variant's directory, and its module in the store."""
    root, process = workspace.project.root, host.probe()
    target = from_source.fitting_target(workspace, process, str(root))
    here = host.with_device(process).capability
    only = (str(here),) if here and target.cuda else ()
    known_lock = _locks.get(root)
    same = known_lock and known_lock[0] == _lock_state(workspace, target)
    request = BuildRequest(
        targets=(target,),
        events=console,
        lock=known_lock[1] if known_lock and same else "update",
        only=only,
        sandbox="off",
        jobs=machine.jobs(),
        runner=nvcc_stages.run_stages,
        edited=device_project.edited,
        trim_every_s=build_module.TRIM_EVERY_S,
    )
    planned = build.plan_project(workspace, request)
    _locks[root] = (_lock_state(workspace, target), planned.lock)
    # What was loaded and given up for nvcc's has taken the op namespace.
    known = _loaded.setdefault(planned.plan.sources_id, set())
    if attempt := sum(not swap.stands(module) for module in known):
        planned = build.plan_project(
            workspace, replace(request, lock=planned.lock, attempt=attempt)
        )
    (artifact,) = planned.plan.artifacts
    # A directory of its own for each state of the sources: what a process has loaded stays.
    name = f"{artifact.ops_name}-{planned.plan.sources_id[:16]}"
    request = replace(request, out=home() / "jit" / "projects" / name)
    result = build.build_project(workspace, request, planned)
    if failures := result.outcome.failures:
        words = "\n".join(failure.text() for failure in failures)
        raise BuildError(f"{target.name} could not be built\n{words}")
    directory = result.variants[target.name]
    (artifact,) = result.plan.artifacts
    if artifact.extension is None:
        return directory, directory
    link = workspace.store.path(STORE_KIND, artifact.extension) / f"{artifact.ops_name}.abi3.so"
    known.add(link)
    return directory, link


def _lock_state(workspace: Workspace, target: Target) -> tuple[object, ...]:
    """What the lock for a target depends on; to make it anew asks the compiler for its parts."""
    stamp = files.stamp(str(workspace.project.root / lockfile.FILE_NAME))
    return (locking.needs(workspace, (target,)), stamp, workspace.compiler, workspace.own)
