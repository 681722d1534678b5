# SPDX-License-Identifier: Apache-2.0
"""Bring a project's lock up to what a build needs, or refuse to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.build.plan import planner
from kernforge.build.workspace import read_lock
from kernforge.errors import StorageError, ToolchainError
from kernforge.project import units
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import host_compiler, installed, lockfile, resolver, tree_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernforge.build.workspace import Workspace
    from kernforge.project.targets import Target
    from kernforge.toolchain.lockfile import Lock, LockedCompiler


def needs(workspace: Workspace, targets: Sequence[Target]) -> resolver.Needs:
    """What the lock must have to build these targets."""
    cuda = {t.cuda for t in targets if t.cuda}
    torch = {t.torch for t in targets if t.torch}
    return resolver.Needs(
        cuda=frozenset(map(str, cuda)),
        torch=frozenset(map(str, torch)),
        headers=frozenset(_headers(workspace, targets)),
        python=planner.wants_python(workspace.project.manifest, workspace.sources, targets),
        libraries=bool(cuda)
        and planner.wants_cuda_libraries(workspace.project.manifest, workspace.sources),
    )


def _headers(workspace: Workspace, targets: Sequence[Target]) -> Iterator[str]:
    cutlass = units.cutlass(workspace.project.manifest)
    if cutlass and any(target.cuda for target in targets):
        yield cutlass
    yield from {tree_names.tvm_ffi_root(t.tvm_ffi) for t in targets if t.tvm_ffi}


def write_lock(workspace: Workspace, wanted: resolver.Needs, *, upgrade: bool) -> Lock:
    """Bring the project's lock up to what is wanted, and write it if that changed anything.

    Args:
        upgrade: look everything up anew instead of keeping what the lock has.

    Raises:
        ToolchainError: no index has what is wanted.
        NetworkError: no index can be reached.
    """
    old = read_lock(workspace.project.root)
    missing = wanted if upgrade else resolver.lacking(wanted, old, workspace.local_parts)
    here = locked_compiler(workspace)
    python = installed.identify_python() if wanted.python else None
    found = resolver.make(
        missing,
        workspace.wheels,
        cpu=workspace.cpu,
        compiler=here,
        python=python,
        local_parts=workspace.local_parts,
        old=None if upgrade else old,
    )
    new = old.merged(found) if old else found
    if new != old:
        try:
            files.write_atomic(workspace.project.root / lockfile.FILE_NAME, new.to_json())
        except StorageError as error:
            raise StorageError(
                error.message,
                hint="a build pins its toolchain in that file: make it where the project takes files, "
                "with `kernforge lock-toolchain`, and commit it",
            ) from error
    return new


def ensure_lock(
    workspace: Workspace, targets: Sequence[Target], *, frozen: bool
) -> tuple[Lock, bool]:
    """The lock for a build, completed first if needed; ``frozen`` forbids that and other compilers.

    Returns:
        The lock, with the compiler that is really here, and whether it was written.

    Raises:
        ToolchainError: it lacks something and may not be changed, or nothing has it.
    """
    wanted = needs(workspace, targets)
    old = read_lock(workspace.project.root)
    missing = resolver.lacking(wanted, old, workspace.local_parts)
    complete = old is not None and not missing.names
    here = locked_compiler(workspace)
    if frozen and (not complete or old is None):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} has no {', '.join(missing.names) or 'content'}",
            hint="run `kernforge lock-toolchain`, or build without --locked",
        )
    if frozen and old is not None and (wrong := old.compiler.difference(here)):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} names another compiler: {wrong}",
            hint="install that compiler and name it in CXX, or build without --locked",
        )
    if frozen and old is not None and wanted.python and (wrong := other_python(old)):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} names {wrong}",
            hint="build with that Python, or build without --locked",
        )
    python = installed.identify_python() if wanted.python else None
    if complete and old is not None:
        return lockfile.on_machine(old, here, python), False
    return lockfile.on_machine(write_lock(workspace, wanted, upgrade=False), here, python), True


def other_python(wanted: Lock) -> str:
    """In words how the headers of Python here differ from a lock's; empty when they do not.

    Raises:
        ToolchainError: the lock names some, and none are installed here.
    """
    if wanted.python is None or wanted.python.headers == installed.identify_python().headers:
        return ""
    here = installed.identify_python().release
    return f"other headers of Python ({wanted.python.release}) than those that are here ({here})"


def cuda_notes(targets: Sequence[Target], locked: Lock) -> tuple[str, ...]:
    """What a user should know of the compilers of these targets' device code."""
    kits = {str(t.cuda): lockfile.toolkit(locked, t.cuda) for t in targets if t.cuda}
    return tuple(
        f"CUDA {version} is compiled by clang {kit.clang.release} instead of nvcc, an experiment"
        for version, kit in sorted(kits.items())
        if kit.clang
    )


def locked_compiler(workspace: Workspace) -> LockedCompiler:
    """The host compiler as a lock records it."""
    return host_compiler.locked(workspace.compiler, run, workspace.store.root / "compilers")
