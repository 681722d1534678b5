# SPDX-License-Identifier: Apache-2.0
"""The toolchain of a build: its lock, completed or refused, and its trees on this machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from kernforge.builder import sandbox
from kernforge.builder.workspace import Workspace, read_lock
from kernforge.errors import NetworkError, StorageError, ToolchainError
from kernforge.project import units
from kernforge.project.targets import Target
from kernforge.project.units import Sources
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import (
    front_end,
    header_libraries,
    host_compiler,
    installed,
    lockfile,
    resolver,
)
from kernforge.toolchain.lockfile import Lock, LockedCompiler, Tree
from kernforge.toolchain.provision import STORE_KIND, Toolchains

Mode: TypeAlias = Literal["update", "frozen", "write", "upgrade"]
"""How a lock is changed: completed, not at all, rewritten, renewed."""


def needs(workspace: Workspace, targets: Sequence[Target]) -> frozenset[Tree]:
    """Trees that the lock must have for these targets, with cross compilers."""
    sources = workspace.project.sources
    compiled = {(t.backend, t.cuda) for t in targets if not t.variant.is_noarch}
    closures = [unit.closure for each in compiled for unit in sources.units(*each)]
    trees = {tree for target in targets for tree in _needs(target)}
    cuda = {str(target.cuda) for target in targets if target.cuda}
    if cuda and (cutlass := units.cutlass(sources.manifest)):
        trees.add(Tree(cutlass))
    if cuda and any(u.closure.reaches_cuda_libraries for u in sources.units("cuda")):
        trees.update(Tree("cuda-libraries", version) for version in cuda)
    if any(closure.reaches_python for closure in closures):
        trees.add(Tree("python"))
    return frozenset(trees)


def _needs(target: Target) -> Iterator[Tree]:
    cpu = target.cross_cpu
    if target.torch:
        yield Tree("torch", str(target.torch), cpu)
    if target.torch and target.borrows_cuda_headers:
        yield Tree("torch", str(target.torch))
    if target.tvm_ffi:
        yield Tree("tvm-ffi", str(target.tvm_ffi))
    if target.cuda:
        yield Tree("cuda", str(target.cuda))
    if cpu:
        yield Tree("cxx", cpu=cpu)
    if cpu and target.cuda:
        yield Tree("cudart", str(target.cuda), cpu)


def ensure_lock(workspace: Workspace, wanted: Collection[Tree], mode: Mode) -> tuple[Lock, bool]:
    """Complete the lock of a project, and write it if it changed.

    Returns:
        The lock, with the compilers and the Python that are really here, and whether it was
        written.

    Raises:
        ToolchainError: it lacks something or names other compilers and is frozen, no index has
            what is wanted, or it is of another kind of machine.
        NetworkError: no index can be reached.
    """
    toolkits = {tree.version for tree in wanted if tree.kind == "cuda"}
    if note := workspace.local_parts.unused_note(toolkits):
        workspace.wheels.progress.note(f"note: {note}")
    old = read_lock(workspace.project.root)
    platform = f"{workspace.cpu}-linux"
    if old is not None and old.platform != platform:
        if mode != "upgrade":
            raise ToolchainError(
                f"{lockfile.FILE_NAME} names compilers that run on {old.platform}; this is "
                f"{platform}",
                hint=f"build on {old.platform}, or lock this machine's toolchain in its place with "
                "`kernforge lock --upgrade`",
            )
        old = None
    known = None if mode == "upgrade" else old
    missing = resolver.lacking(wanted, known, workspace.local_parts)
    names = {tree.name for tree in wanted}
    if mode == "frozen":
        problem = f"has no {', '.join(map(str, sorted(missing))) or 'content'}"
        if old and not missing:
            wrong = difference(workspace, old, names)
            problem = f"names {wrong}" if wrong else ""
        if problem:
            raise ToolchainError(
                f"{lockfile.FILE_NAME} {problem}",
                hint="run `kernforge lock`, name the locked compiler in CXX, or build without "
                "--locked",
            )
    compilers = locked_compilers(workspace, names)
    new = old
    if new is None or missing or mode in {"write", "upgrade"}:
        resolved = _resolve(workspace, missing, compilers, known, renew=mode == "upgrade")
        new = old.merged(resolved) if old else resolved
    if new != old:
        try:
            files.write_atomic(workspace.project.root / lockfile.FILE_NAME, new.to_json())
        except StorageError as error:
            raise StorageError(
                error.message,
                hint="a build pins its toolchain in that file: make it where the project takes "
                "files, with `kernforge lock`, and commit it",
            ) from error
    return _as_here(new, wanted, compilers), new != old


def _resolve(
    workspace: Workspace,
    missing: Collection[Tree],
    compilers: Mapping[str, LockedCompiler],
    old: Lock | None,
    *,
    renew: bool,
) -> Lock:
    """Resolve missing trees: from the indexes, or from earlier builds if no index is reachable.

    Args:
        old: its toolkits are completed in their releases.
        renew: whether only the indexes will do.
    """
    home = workspace.store.root.parent
    try:
        resolved = resolver.make(
            missing,
            workspace.wheels,
            cpu=workspace.cpu,
            compilers=compilers,
            local_parts=workspace.local_parts,
            old=old,
        )
    except (NetworkError, ToolchainError) as error:
        known = resolver.remembered(home, f"{workspace.cpu}-linux")
        here = {tree for tree in missing if tree.kind == "python" or tree.name in compilers}
        lacking = resolver.lacking(set(missing) - here, known, workspace.local_parts)
        if renew or known is None or lacking:
            raise
        workspace.wheels.progress.note(
            f"{error.message}: the toolchain of earlier builds is locked"
        )
        part = known.part({tree.name for tree in missing})
        return _as_here(replace(part, compilers=compilers), missing, compilers)
    if missing:
        resolver.remember(home, resolved)
    return resolved


def _as_here(lock: Lock, wanted: Collection[Tree], compilers: Mapping[str, LockedCompiler]) -> Lock:
    """The lock as it is on this machine: with its compilers, and its headers of Python."""
    here = replace(lock, compilers={**lock.compilers, **compilers})
    return here.having(installed.identify_python()) if Tree("python") in wanted else here


def difference(workspace: Workspace, lock: Lock, trees: Collection[str]) -> str:
    """Describe how compilers and Python headers here differ from a lock's; empty if they do not.

    Args:
        trees: names of the trees to compare.
    """
    here = locked_compilers(workspace, trees)
    wrong = (lock.compilers[name].difference(here[name]) for name in here if name in lock.compilers)
    if differences := "; ".join(filter(None, wrong)):
        return f"another compiler: {differences}"
    there = lock.trees.get("python") if "python" in trees else None
    if there is None or there.digest == (python := installed.identify_python()).digest:
        return ""
    return f"other headers of Python ({there.release}) than those that are here ({python.release})"


def toolchain_notes(sources: Sources, targets: Sequence[Target], locked: Lock) -> Iterator[str]:
    """Notes for the user on the compilers and headers of these targets' device code."""
    versions = sorted({target.cuda for target in targets if target.cuda})
    name = units.cutlass(sources.manifest) if versions else ""
    headers = locked.trees.get(name)
    if headers and headers.wheels and (about := header_libraries.note(name)):
        yield about
    for version in versions:
        compiled = [unit for unit in sources.units("cuda", version) if unit.is_cuda]
        asked = {arch for unit in compiled for arch in unit.archs}
        lacking = [str(arch) for arch in sorted(asked) if front_end.compiled_as(arch) != arch]
        if lacking and locked.toolkit(version).front_end:
            yield (
                f"CUDA {version} has no code for {', '.join(lacking)}, which its wheels' compiler "
                "lacks: KERNFORGE_CUDA_HOME names one that has them"
            )


def locked_compilers(workspace: Workspace, trees: Iterable[str]) -> dict[str, LockedCompiler]:
    """This machine's compilers as a lock records them: its own, and those among trees.

    Args:
        trees: names; those of compilers count, as ``aarch64-cxx``.
    """
    compilers = {"cxx": workspace.compiler}
    for name in trees:
        cpu, is_compiler, _ = name.partition("-cxx")
        if is_compiler:
            compilers[name] = workspace.compiler_for(cpu)
    memory = workspace.store.root / "compilers"
    return {name: host_compiler.locked(each, run, memory) for name, each in compilers.items()}


def tree_paths(workspace: Workspace, names: Iterable[str], lock: Lock) -> dict[str, str]:
    """Fetch toolchain trees into the store; returns the real path of each."""
    toolchains = Toolchains(workspace.store, workspace.wheels, workspace.local_parts)
    paths = {name: _tree(name, workspace, toolchains, lock) for name in sorted(names)}
    for path in paths.values():
        # Line tables hold the time of every header; a tree that the store made is ours to set.
        if Path(path).is_relative_to((workspace.store.root / STORE_KIND).resolve()):
            files.set_times(Path(path), sandbox.EPOCH)
    return paths


def _tree(name: str, workspace: Workspace, toolchains: Toolchains, lock: Lock) -> str:
    if name == "cxx":
        return workspace.compiler.program(workspace.store.root / "compilers")
    if name in lock.compilers:
        cpu = name.partition("-cxx")[0]
        return workspace.compiler_for(cpu).path
    # Compilers follow links and write what they find into ``__FILE__``.
    return os.path.realpath(toolchains.path(lock.tree(name)))
