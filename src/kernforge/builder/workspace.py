# SPDX-License-Identifier: Apache-2.0
"""A project on this machine: its compiler, store, candidates, toolchain lock and trees."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from kernforge.artifact.version import Version2
from kernforge.builder import results, sandbox
from kernforge.errors import StorageError, ToolchainError, UsageError
from kernforge.project import targets, units
from kernforge.project.api import Project, read_document
from kernforge.project.targets import Target, TargetCandidate
from kernforge.project.units import Sources
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.system.progress import Progress
from kernforge.system.tables import first_names
from kernforge.toolchain import (
    front_end,
    header_libraries,
    host_compiler,
    installed,
    lockfile,
    resolver,
    used,
)
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock, LockedCompiler, Tree
from kernforge.toolchain.provision import STORE_KIND, Toolchains
from kernforge.toolchain.resolver import Policy

if TYPE_CHECKING:
    from kernforge.store.remote import SharedStore

_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A project on this machine, ready to be planned.

    Attributes:
        cpu: processor of this machine, as variant names spell it.
    """

    project: Project
    compiler: Compiler
    store: Store
    wheels: Wheels
    cpu: str
    local_parts: LocalParts
    environment: Environment

    @functools.cached_property
    def candidates(self) -> tuple[TargetCandidate, ...]:
        """Variants for this machine's processor, and those that it can build for others."""
        variants = list(candidates(self.project, self.cpu, self.local_parts))
        for other in host_compiler.CROSS.get(self.cpu, ()):
            considered = candidates(self.project, other, self.local_parts)
            variants += targets.for_another_cpu(considered, other)
        return tuple(variants)

    @property
    def library_path(self) -> str:
        """The ``LD_LIBRARY_PATH`` that the compilers need; empty for most."""
        toolkit = self.local_parts.cuda
        return self.compiler.library_path or (toolkit.library_path if toolkit else "")

    def compiler_for(self, cpu: str) -> Compiler:
        """The compiler for a processor; empty means this machine's."""
        return find_cross(cpu, self.environment) if cpu else self.compiler


def this_cpu() -> str:
    """Processor of this machine, as variant names spell it."""
    machine, system = platform.machine().lower(), platform.system()
    if system != "Linux" or machine not in _CPUS:
        raise UsageError(
            f"kernels are built on x86_64 or aarch64 Linux; this is {machine} {system}",
            hint="loading published kernels works here all the same",
        )
    return _CPUS[machine]


def open_workspace(
    project: Project,
    progress: Progress,
    environment: Environment,
    local_parts: LocalParts | None = None,
    *,
    shared: SharedStore | None = None,
    cxx: Compiler | None = None,
) -> Workspace:
    """Find the compiler, the store and the local toolchain of a project.

    Args:
        local_parts: what the user provides in the place of wheels.
    """
    eviction.limit(environment)  # refused before anything is compiled
    store = Store(environment.store, shared)
    variables, cpu = environment.variables, this_cpu()
    compiler = cxx or host_compiler.find(variables, run)
    if not environment.may_compile:
        compiler = replace(compiler, refusal=used.FORBIDDEN)
    store.note = progress.note
    store.accepts = functools.partial(results.is_valid, compiles=not compiler.refusal)
    return Workspace(
        project=project,
        compiler=compiler,
        store=store,
        wheels=Wheels.of(variables, store.root / "downloads", progress),
        cpu=cpu,
        local_parts=local_parts or LocalParts(),
        environment=environment,
    )


def cpu_of(system: str) -> str:
    """The processor of a system, as ``aarch64`` of ``aarch64-linux``."""
    here = this_cpu()
    known = [here, *host_compiler.CROSS.get(here, ())]
    name = system.removesuffix("-linux")
    cpu = _CPUS.get(name, name)
    if cpu not in known:
        raise UsageError(
            f"{here} Linux does not build for {system!r}",
            hint=f"it builds for {', '.join(f'{each}-linux' for each in known)}",
        )
    return cpu


def find_cross(cpu: str, environment: Environment) -> Compiler:
    """The compiler of this machine for another processor."""
    return host_compiler.find_cross(cpu, environment.variables, run)


def candidates(project: Project, cpu: str, local_parts: LocalParts) -> tuple[TargetCandidate, ...]:
    """The project's variants for one processor.

    They depend on what the user provides, on what the lock has and, if it is this machine's
    processor, on the torch that is installed.
    """
    cross = cpu != this_cpu()
    lock = read_lock(project.root)
    has = {Version2.parse(version) for version in lock.versions("cuda")} if lock else set()
    if local_parts.cuda:
        has.add(local_parts.cuda.version)
    return targets.candidates(
        project.manifest,
        cpu=cpu,
        local_toolkits=has,
        torch_here=None if cross else installed.torch_here(),
        cross=cross,
    )


def read_lock(root: Path) -> Lock | None:
    """The project's lock, if it has one."""
    data = read_document(root, lockfile.FILE_NAME)
    if data is None:
        return None
    return lockfile.from_json(data.decode(errors="replace"), source=str(root / lockfile.FILE_NAME))


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
            wrong = lock_difference(workspace, old, names)
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
        resolved = resolver.provide(
            missing,
            workspace.wheels,
            Policy.RENEWED if mode == "upgrade" else Policy.NEWEST,
            home=workspace.store.root.parent,
            cpu=workspace.cpu,
            compilers=compilers,
            local_parts=workspace.local_parts,
            old=known,
        )
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


def _as_here(lock: Lock, wanted: Collection[Tree], compilers: Mapping[str, LockedCompiler]) -> Lock:
    """The lock as it is on this machine: with its compilers, and its headers of Python."""
    here = replace(lock, compilers={**lock.compilers, **compilers})
    return here.having(installed.identify_python()) if Tree("python") in wanted else here


def lock_difference(workspace: Workspace, lock: Lock, trees: Collection[str]) -> str:
    """Describe how compilers and Python headers here differ from a lock's; empty if they do not."""
    here = locked_compilers(workspace, trees)
    wrong = (lock.compilers[name].difference(here[name]) for name in here if name in lock.compilers)
    if differences := "; ".join(filter(None, wrong)):
        return f"another compiler: {differences}"
    there = lock.trees.get("python") if "python" in trees else None
    if there is None or there.digest == (python := installed.identify_python()).digest:
        return ""
    return f"other headers of Python ({there.release}) than those that are here ({python.release})"


def toolchain_notes(
    sources: Sources, targets: Sequence[Target], locked: Lock, *, every_source: bool = False
) -> Iterator[str]:
    """Notes for the user on the compilers and headers of these targets' device code."""
    versions = sorted({target.cuda for target in targets if target.cuda})
    compiled_for = {target.backend for target in targets if not target.variant.is_noarch}
    has_cuda = compiled_for == {"cpu"} and "cuda" in sources.manifest.general.backends
    leaves = has_cuda and not every_source
    if left := [unit.path for unit in sources.units("cuda") if leaves and unit.is_cuda]:
        yield (
            f"{first_names(left)} {'is' if len(left) == 1 else 'are'} not compiled, since this is "
            "a build for the CPU; `kernforge build --list` has the variants for CUDA"
        )
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
        return workspace.compiler.path
    if name in lock.compilers:
        cpu = name.partition("-cxx")[0]
        return workspace.compiler_for(cpu).path
    # Compilers follow links and write what they find into ``__FILE__``.
    return os.path.realpath(toolchains.path(lock.tree(name)))
