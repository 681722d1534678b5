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
from kernforge.build import from_source, locking, steps, trees, workspace
from kernforge.build.execute import executor, sandbox
from kernforge.build.execute.results import SHELF
from kernforge.errors import BuildError, NetworkError, NoVariantError, ToolchainError
from kernforge.jit import build_module, files, machine, undefined
from kernforge.jit.device import nvcc_stages, project, swap
from kernforge.loader import host, resolve
from kernforge.loader.api import get_local_kernel
from kernforge.manifest.model import TvmFfi
from kernforge.system import console
from kernforge.system.console import Report
from kernforge.system.paths import home
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, lockfile
from kernforge.toolchain.local_parts import NOTHING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kernforge.build.workspace import Bench
    from kernforge.jit.files import Stamp
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.local_parts import Brought, Own
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
_mine: dict[tuple[Path, str], Own] = {}
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
    one = workspace.read_project(directory)
    if not isinstance(one.manifest.framework, TvmFfi):
        machine.import_torch()  # or all that is told is that no variant fits
    stamps = {str(path): files.stamp(str(path)) for path in one.files.values()}
    folders = {str(path.parent) for path in one.files.values()}
    listing = {folder: os.stat(folder).st_mtime_ns for folder in folders}  # noqa: PTH116
    lock = files.stamp(str(one.root / lockfile.FILE_NAME))
    path, link = _made(one, Report(quiet=not verbose, failures=False))
    if files.stamp(str(one.root / lockfile.FILE_NAME)) != lock:  # it was written just now
        listing[str(one.root)] = os.stat(one.root).st_mtime_ns  # noqa: PTH116
    try:
        module = get_local_kernel(path)
    except ImportError as error:
        if told := _undefined(one, path, str(error)):
            raise told from error
        raise
    _known[key] = _Known(stamps=stamps, listing=listing, module=module, link=link)
    return module


def _undefined(one: Project, variant: Path, words: str) -> BuildError | None:
    """What a module of a project misses that its binding calls; None if that is not what is wrong."""
    symbol = undefined.symbol(words)
    if not symbol:
        return None
    backend = Variant.parse(variant.name).backend.name
    tables = [table for table in one.manifest.kernels.values() if table.backend == backend]
    texts = {
        name: path.read_text(encoding="utf-8", errors="replace")
        for name, path in one.files.items()
        if name.endswith(undefined.READ)
    }
    return undefined.error(
        one.manifest.general.name,
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


def _made(one: Project, teller: Report) -> tuple[Path, Path]:
    """The project's variant for this process and its module in the store, built if need be.

    What the lock names goes first. Where it cannot be had, this machine's own torch lends its headers
    and the installed toolkit its compilers.
    """
    cxx = _compiler(os.environ.get("CXX"), os.environ.get("PATH"))
    key = (one.root, one.manifest.content)
    if mine := _mine.get(key):
        bench = workspace.set_up(one, teller, cxx=cxx, mine=mine)
        return _build(bench, _target(bench), teller)
    try:
        bench = workspace.set_up(one, teller, _lent(one), cxx=cxx)
        found = _build(bench, _target(bench), teller)
    except (NetworkError, ToolchainError) as error:
        own = from_source.own_parts(host.probe(), error)
        _log.warning("%s; this machine's own torch and compilers are taken instead", error.message)
        bench = workspace.set_up(one, teller, own, cxx=cxx)
        found = _build(bench, _target(bench), teller)
    _mine[key] = bench.own
    return found


def _lent(one: Project) -> Brought:
    """What this machine lent to the project's lock when that was written."""
    lock = workspace.read_lock(one.root)
    named = any(name.startswith("torch-") for name in lock.headers) if lock else False
    if not named:
        return NOTHING
    return from_source.own_parts(host.probe(), ToolchainError("the lock names an installed torch"))


@functools.cache
def _compiler(named: str | None, path: str | None) -> Compiler:
    """The C++ compiler for values of ``CXX`` and ``PATH``; to ask it takes as long as a link."""
    del named, path
    return host_compiler.find(os.environ, run)


def _target(bench: Bench) -> Target:
    """The project's variant for this process.

    Raises:
        NoVariantError: it has none.
    """
    mine = bench.own.cuda_home
    targets = {
        one.name: one.target
        for one in bench.candidates
        if one.target and not (mine and one.target.cuda not in {None, mine.version})
    }
    found = resolve.resolve(targets, host.probe())
    chosen = targets.get(found.best.name) if found.best else None
    if chosen is None:
        refused = "\n".join(
            f"{one.name}: {one.reason}" for one in bench.candidates if not one.target
        )
        raise NoVariantError(
            f"{bench.project.root} has no variant for this process\n{found.trace()}\n{refused}",
            hint="kernforge variants lists them",
        )
    return chosen


def _build(bench: Bench, target: Target, teller: Report) -> tuple[Path, Path]:
    """The variant's directory, and its module in the store."""
    locked = _locked(bench, target)
    here = host.with_device(host.probe()).capability
    only = (f"{here[0]}.{here[1]}",) if here and target.cuda else ()
    make = functools.partial(steps.make_plan, bench, (target,), locked, only=only)
    made = make()
    # What was loaded and given up for nvcc's has taken the op namespace.
    known = _loaded.setdefault(made.sources_id, set())
    if attempt := sum(not swap.stands(one) for one in known):
        made = make(attempt=attempt)
    with bench.store.lease():
        paths = trees.fetch(bench, made, locked)
        jobs = machine.jobs()
        workshop = steps.make_workshop(bench, paths, jobs=jobs, isolation=sandbox.OFF)
        workshop = replace(workshop, runner=nvcc_stages.run_stages)
        place = project.Place(lock=locked, store=bench.store, roots=paths)
        found, learn = project.edited(bench, made, place, workshop)
        (artifact,) = found.artifacts
        # A directory of its own for each state of the sources: what a process has loaded stays.
        out = home() / "jit" / "projects" / f"{artifact.ops_name}-{found.sources_id[:16]}"
        outcome = executor.build(
            found,
            bench.project,
            workshop,
            out=out,
            origin=steps.origin(bench, found, locked),
            events=teller,
        )
        if not outcome.failures and learn:
            swap.learn(learn, place)
        build_module.tidy(bench.store)
    if outcome.failures:
        words = "\n".join(console.failure_text(failure) for failure in outcome.failures)
        raise BuildError(f"{target.name} could not be built\n{words}")
    directory = outcome.variants[target.name]
    if artifact.extension is None:
        return directory, directory
    link = bench.store.path(SHELF, artifact.extension) / f"{artifact.ops_name}.abi3.so"
    known.add(link)
    return directory, link


def _locked(bench: Bench, target: Target) -> Lock:
    """The project's lock with what a target needs; the one of before if nothing is other than then."""
    path = str(bench.project.root / lockfile.FILE_NAME)
    wanted = locking.needs(bench, (target,))
    known = _locks.get(bench.project.root)
    now = (wanted, files.stamp(path), bench.compiler, bench.own)
    if known and known[0] == now:
        return known[1]
    locked, _ = locking.ensure_lock(bench, (target,), locked=False)
    _locks[bench.project.root] = (
        (wanted, files.stamp(path), bench.compiler, bench.own),
        locked,
    )
    return locked
