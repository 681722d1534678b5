# SPDX-License-Identifier: Apache-2.0
"""Look at the machine and at a project: all that planning a build starts from."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.builder import results
from kernforge.errors import ToolchainError, UsageError
from kernforge.project import targets, units
from kernforge.project.api import Project, read_document
from kernforge.project.targets import TargetCandidate
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, installed, lockfile
from kernforge.toolchain.host_compiler import Compiler
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Progress, Wheels
from kernforge.toolchain.local_parts import (
    NO_LOCAL_PARTS,
    LocalParts,
    LocalPartsOptions,
    find_local_parts,
)
from kernforge.toolchain.lockfile import Lock

if TYPE_CHECKING:
    from kernforge.store.remote import SharedStore

_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """A project on this machine, ready to be planned.

    Attributes:
        store_limit: bytes that the store may take.
        search_path: the ``PATH`` of this process.
        compiles: whether compilers may run.
    """

    project: Project
    candidates: tuple[TargetCandidate, ...]
    compiler: Compiler
    store: Store
    store_limit: int
    wheels: Wheels
    cpu: str
    local_parts: LocalParts
    search_path: str
    compiles: bool


def this_cpu() -> str:
    """This machine's processor as variant names spell it.

    Raises:
        UsageError: kernels cannot be built on such a machine.
    """
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
    options: LocalPartsOptions = NO_LOCAL_PARTS,
    *,
    shared: SharedStore | None = None,
    cxx: Compiler | None = None,
) -> Workspace:
    """Look at the machine and at a project's files.

    Args:
        options: what the user provides that the package index does not carry.
        shared: the store's second level.
        cxx: the C++ compiler, where it was found before.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user provides is not there or not what it should be, or
            ``KERNFORGE_STORE_SIZE`` is not a size.
    """
    cpu = this_cpu()
    store = Store(environment.home / "store", shared)
    store.note, store.accepts = progress.note, results.holds_here
    variables = environment.variables
    found = find_local_parts(options, units.cutlass(project.manifest), environment)
    return Workspace(
        project=project,
        candidates=_all_candidates(project, cpu, found),
        compiler=cxx or host_compiler.find(variables, run),
        store=store,
        store_limit=eviction.limit(environment),
        wheels=Wheels(Index.lazily(variables), store.root / "downloads", progress),
        cpu=cpu,
        local_parts=found,
        search_path=variables.get("PATH", ""),
        compiles=environment.may_compile,
    )


def cpu_of(system: str) -> str:
    """The processor of a system, as ``aarch64`` of ``aarch64-linux``.

    Raises:
        UsageError: this machine does not build for it.
    """
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


def lacking_compiler(cpu: str, environment: Environment) -> str:
    """Why nothing can be compiled for another processor, and what to do; empty if it can."""
    try:
        host_compiler.find_cross(cpu, environment.variables.get("PATH", ""), run)
    except ToolchainError as error:
        return f"{error.message}: {error.hint}"
    return ""


def _all_candidates(
    project: Project, cpu: str, local_parts: LocalParts
) -> tuple[TargetCandidate, ...]:
    """The variants for this machine's processor, and those that it can build for others."""
    found = list(candidates(project, cpu, local_parts))
    for other in host_compiler.CROSS.get(cpu, ()):
        found += targets.for_another_cpu(candidates(project, other, local_parts), other)
    return tuple(found)


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
    """The project's lock, if it has one.

    Raises:
        ToolchainError: it is damaged.
    """
    data = read_document(root, lockfile.FILE_NAME)
    if data is None:
        return None
    return lockfile.from_json(data.decode(errors="replace"), source=str(root / lockfile.FILE_NAME))
