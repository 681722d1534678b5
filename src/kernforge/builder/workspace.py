# SPDX-License-Identifier: Apache-2.0
"""A project on this machine: compiler, store, candidates."""

from __future__ import annotations

import functools
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.builder import results
from kernforge.errors import UsageError
from kernforge.project import targets, units
from kernforge.project.api import Project, read_document
from kernforge.project.targets import TargetCandidate
from kernforge.store import eviction
from kernforge.store.local import Store
from kernforge.system.environment import Environment
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, installed, lockfile
from kernforge.toolchain.host_compiler import Compiler
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


@dataclass(frozen=True, kw_only=True)
class Workspace:
    """A project on this machine, ready to be planned.

    Attributes:
        cpu: processor of this machine, as variant names spell it.
        local_parts: parts of the toolchain that the user provides.
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
    options: LocalPartsOptions = NO_LOCAL_PARTS,
    *,
    shared: SharedStore | None = None,
    cxx: Compiler | None = None,
) -> Workspace:
    """Find the compiler, the store and the local toolchain of a project.

    Args:
        options: what the user provides that the package index does not carry.
        shared: the store's second level.
        cxx: the C++ compiler, where it was found before.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user provides is not there or not what it should be, or
            ``KERNFORGE_STORE_SIZE`` is not a size.
    """
    eviction.limit(environment)  # refused before anything is compiled
    store = Store(environment.home / "store", shared)
    store.note, store.accepts = progress.note, results.is_valid
    variables = environment.variables
    return Workspace(
        project=project,
        compiler=cxx or host_compiler.find(variables, run),
        store=store,
        wheels=Wheels.of(variables, store.root / "downloads", progress),
        cpu=this_cpu(),
        local_parts=find_local_parts(options, units.cutlass(project.manifest), environment),
        environment=environment,
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


def find_cross(cpu: str, environment: Environment) -> Compiler:
    """The compiler of this machine for another processor."""
    return host_compiler.find_cross(cpu, environment.variables.get("PATH", ""), run)


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
