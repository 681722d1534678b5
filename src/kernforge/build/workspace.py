# SPDX-License-Identifier: Apache-2.0
"""Look at the machine and at a project: all that planning a build starts from."""

from __future__ import annotations

import functools
import os
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.project import api as project
from kernforge.project import source_files, targets, units
from kernforge.store.local import Store
from kernforge.system.paths import home
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, local_parts, lockfile
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernforge.artifact.variant import Version2
    from kernforge.project.api import Project
    from kernforge.project.targets import Candidate
    from kernforge.project.units import Sources
    from kernforge.store.remote import SharedStore
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.index.wheels import Progress
    from kernforge.toolchain.local_parts import Brought, Own
    from kernforge.toolchain.lockfile import Lock

_CPUS = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """A project on this machine, ready to be planned.

    Attributes:
        project: the kernel project.
        sources: its files as a plan sees them.
        candidates: its variants.
        compiler: the host's C++ compiler.
        store: where everything is kept.
        wheels: the user's package indexes.
        cpu: this machine's processor.
        own: what the user brings to the toolchain.
    """

    project: Project
    sources: Sources
    candidates: tuple[Candidate, ...]
    compiler: Compiler
    store: Store
    wheels: Wheels
    cpu: str
    own: Own


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


def read_project(directory: Path) -> Project:
    """The project that holds a directory.

    Raises:
        ManifestError: its build.toml is wrong.
        UsageError: there is none.
    """
    return project.read(project.find(directory), run)


def set_up(
    one: Project,
    progress: Progress,
    brought: Brought = NOTHING,
    *,
    shared: SharedStore | None = None,
    cxx: Compiler | None = None,
    mine: Own | None = None,
) -> Bench:
    """Look at the machine and at the project's files.

    Args:
        one: the project.
        progress: is told of downloads.
        brought: what the user brings that the package index does not carry.
        shared: the store's second level.
        cxx: the C++ compiler, where it was found before.
        mine: what ``brought`` was found to be before.

    Raises:
        ToolchainError: there is no C++ compiler.
        UsageError: what the user brings is not there or not what it should be.
    """
    cpu = this_cpu()
    store = Store(home() / "store", shared)
    index = functools.cache(Index.from_environment)
    found = mine or look_for_own(one, progress, brought, index)
    return Bench(
        project=one,
        sources=source_files.read(one),
        candidates=candidates(one, cpu, found),
        compiler=cxx or host_compiler.find(os.environ, run),
        store=store,
        wheels=Wheels(index, store.root / "downloads", progress),
        cpu=cpu,
        own=found,
    )


def look_for_own(
    one: Project,
    progress: Progress,
    brought: Brought,
    index: Callable[[], Index] = Index.from_environment,
) -> Own:
    """What the user brings that this project can use.

    Raises:
        UsageError: something is not there or not what it should be.
    """
    return local_parts.find(
        brought,
        units.cutlass(one.manifest),
        connect=lambda: index().transport,
        downloads=home() / "store" / "downloads",
        progress=progress,
    )


def candidates(one: Project, cpu: str, mine: Own) -> tuple[Candidate, ...]:
    """The project's variants, given what the user brings and what its lock has."""
    locked = read_lock(one.root)
    kits = locked.cuda if locked else {}
    clang = {_version(name) for name, kit in kits.items() if kit.clang}
    if mine.cuda_compiler == "clang":
        clang |= set(targets.CLANG)
    elif mine.cuda_compiler == "nvcc":
        clang = set()
    has = {_version(name) for name, kit in kits.items() if not kit.clang}
    if mine.cuda_home:
        has.add(mine.cuda_home.version)
    if mine.redist:
        has |= {cuda for known in targets.torch_releases().values() for cuda in known}
    return targets.candidates(one.manifest, cpu=cpu, own_toolkits=has, by_clang=clang - has)


def _version(text: str) -> Version2:
    major, minor = text.split(".")
    return (int(major), int(minor))


def read_lock(root: Path) -> Lock | None:
    """The project's lock, if it has one.

    Raises:
        ToolchainError: it is damaged.
    """
    path = root / lockfile.FILE_NAME
    return lockfile.from_json(path.read_text(), source=str(path)) if path.is_file() else None
