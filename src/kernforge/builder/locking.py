# SPDX-License-Identifier: Apache-2.0
"""Bring a project's lock up to what a build needs, or refuse to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernforge.artifact.version import Version2
from kernforge.builder.plan import planner
from kernforge.builder.workspace import Workspace, read_lock
from kernforge.errors import NetworkError, StorageError, ToolchainError
from kernforge.manifest.document import Manifest
from kernforge.project import units
from kernforge.project.targets import Target
from kernforge.system import files
from kernforge.system.process import run
from kernforge.toolchain import (
    front_end,
    header_libraries,
    host_compiler,
    installed,
    lockfile,
    resolver,
    tree_names,
)
from kernforge.toolchain.cross import CrossNeeds
from kernforge.toolchain.cuda_arch import Arch
from kernforge.toolchain.lockfile import Lock, LockedCompiler

# In KERNFORGE_HOME: what was found in the indexes, so that a new project needs no network.
_REMEMBERED = "toolchain.lock"


def needs(workspace: Workspace, targets: Sequence[Target]) -> resolver.Needs:
    """What the lock must have to build these targets."""
    cuda = {t.cuda for t in targets if t.cuda}
    torch = {t.torch for t in targets if t.torch and (not t.cross or t.borrows_cuda_headers)}
    return resolver.Needs(
        cuda=frozenset(map(str, cuda)),
        torch=frozenset(map(str, torch)),
        cross=_cross_needs(targets),
        headers=frozenset(_headers(workspace, targets)),
        python=planner.wants_python(workspace.project.manifest, workspace.sources, targets),
        libraries=bool(cuda)
        and planner.wants_cuda_libraries(workspace.project.manifest, workspace.sources),
    )


def _cross_needs(targets: Sequence[Target]) -> dict[str, CrossNeeds]:
    """What the targets for each other processor need."""
    return {
        cpu: CrossNeeds(
            torch=frozenset(str(t.torch) for t in targets if t.torch and t.cross_cpu == cpu),
            cuda=frozenset(str(t.cuda) for t in targets if t.cuda and t.cross_cpu == cpu),
        )
        for cpu in sorted({t.cross_cpu for t in targets if t.cross})
    }


def _headers(workspace: Workspace, targets: Sequence[Target]) -> Iterator[str]:
    cutlass = units.cutlass(workspace.project.manifest)
    if cutlass and any(target.cuda for target in targets):
        yield cutlass
    yield from {tree_names.tvm_ffi_root(t.tvm_ffi) for t in targets if t.tvm_ffi}


def write_lock(workspace: Workspace, wanted: resolver.Needs, *, upgrade: bool) -> Lock:
    """Bring the project's lock up to what is wanted, and write it if that changed anything.

    Args:
        upgrade: look everything up again instead of keeping what the lock has.

    Raises:
        ToolchainError: no index has what is wanted, or the lock is of another kind of machine.
        NetworkError: no index can be reached.
    """
    old = read_lock(workspace.project.root)
    if upgrade and old is not None and old.platform != f"{workspace.cpu}-linux":
        old = None
    _refuse_other_platform(workspace, old)
    missing = wanted if upgrade else resolver.lacking(wanted, old, workspace.local_parts)
    here = locked_compiler(workspace)
    python = installed.identify_python() if wanted.python else None
    crossing = locked_cross_compilers(workspace, missing.cross)
    remembered = workspace.store.root.parent / _REMEMBERED
    known = _read_remembered(remembered)
    try:
        found = resolver.make(
            missing,
            workspace.wheels,
            cpu=workspace.cpu,
            compiler=here,
            python=python,
            local_parts=workspace.local_parts,
            old=None if upgrade else old,
            cross_compilers=crossing,
        )
    except (NetworkError, ToolchainError) as error:
        wheels = replace(missing, python=False)  # Python's headers are this machine's
        lacking = resolver.lacking(wheels, known, workspace.local_parts)
        if upgrade or known is None or lacking.names or known.platform != f"{workspace.cpu}-linux":
            raise
        found = lockfile.on_machine(resolver.picked(missing, known), here, python, crossing)
        workspace.wheels.progress.note(
            f"{error.message}: the toolchain of earlier builds is locked"
        )
    else:
        if missing.names:
            both = known.merged(found) if known and known.platform == found.platform else found
            files.write_atomic(remembered, resolver.of_indexes(both).to_json(), durable=False)
    new = old.merged(found) if old else found
    if new != old:
        try:
            files.write_atomic(workspace.project.root / lockfile.FILE_NAME, new.to_json())
        except StorageError as error:
            raise StorageError(
                error.message,
                hint="a build pins its toolchain in that file: make it where the project takes "
                "files, with `kernforge lock-toolchain`, and commit it",
            ) from error
    return new


def _read_remembered(path: Path) -> Lock | None:
    """What earlier builds of this machine locked; None if that is not known."""
    try:
        return lockfile.from_json(path.read_text(), source=str(path))
    except (OSError, ValueError, ToolchainError):  # there is none, or it is damaged
        return None


def ensure_lock(
    workspace: Workspace, targets: Sequence[Target], *, frozen: bool
) -> tuple[Lock, bool]:
    """The lock for a build, completed first if needed; ``frozen`` forbids that and other compilers.

    Returns:
        The lock, with the compiler that is really here, and whether it was written.

    Raises:
        ToolchainError: it lacks something and may not be changed, nothing has it, or it is of
            another kind of machine.
    """
    wanted = needs(workspace, targets)
    if note := workspace.local_parts.unused_note(wanted.cuda):
        workspace.wheels.progress.note(f"note: {note}")
    old = read_lock(workspace.project.root)
    _refuse_other_platform(workspace, old)
    missing = resolver.lacking(wanted, old, workspace.local_parts)
    if frozen and (old is None or missing.names):
        raise ToolchainError(
            f"{lockfile.FILE_NAME} has no {', '.join(missing.names) or 'content'}",
            hint="run `kernforge lock-toolchain`, or build without --locked",
        )
    here = locked_compiler(workspace)
    crossing = locked_cross_compilers(workspace, wanted.cross)
    if frozen and old is not None:
        refuse_others(old, here, crossing, python=wanted.python)
    python = installed.identify_python() if wanted.python else None
    if old is not None and not missing.names:
        return lockfile.on_machine(old, here, python, crossing), False
    written = write_lock(workspace, wanted, upgrade=False)
    return lockfile.on_machine(written, here, python, crossing), True


def refuse_others(
    lock: Lock, here: LockedCompiler, crossing: Mapping[str, LockedCompiler], *, python: bool
) -> None:
    """Refuse compilers, and headers of Python, that are not those of a lock."""
    native, cross = lock.compiler.difference(here), other_cross_compiler(lock, crossing)
    for wrong, remedy in (
        (native and f"another compiler: {native}", "install that compiler and name it in CXX"),
        (cross and f"another compiler: {cross}", "install that compiler"),
        (other_python(lock) if python else "", "build with that Python"),
    ):
        if wrong:
            raise ToolchainError(
                f"{lockfile.FILE_NAME} names {wrong}", hint=f"{remedy}, or build without --locked"
            )


def _refuse_other_platform(workspace: Workspace, lock: Lock | None) -> None:
    """Refuse a lock whose compilers do not run here."""
    if lock is None or lock.platform == f"{workspace.cpu}-linux":
        return
    others = " ".join(host_compiler.CROSS.get(lock.platform.partition("-")[0], ()))
    there = f", which builds for {others} too (--system {others}-linux)" if others else ""
    raise ToolchainError(
        f"{lockfile.FILE_NAME} names compilers that run on {lock.platform}; this is "
        f"{workspace.cpu}-linux",
        hint=f"build on {lock.platform}{there}, or lock this machine's toolchain in its place with "
        "`kernforge lock-toolchain --upgrade`",
    )


def other_python(wanted: Lock) -> str:
    """In words how the headers of Python here differ from a lock's; empty when they do not.

    Raises:
        ToolchainError: the lock names some, and none are installed here.
    """
    if wanted.python is None or wanted.python.headers == installed.identify_python().headers:
        return ""
    here = installed.identify_python().release
    return f"other headers of Python ({wanted.python.release}) than those that are here ({here})"


def toolchain_notes(manifest: Manifest, targets: Sequence[Target], locked: Lock) -> tuple[str, ...]:
    """What a user should know of the compilers and headers of these targets' device code."""
    name = units.cutlass(manifest) if any(target.cuda for target in targets) else ""
    headers = locked.headers.get(name)
    about = header_libraries.note(name) if headers and headers.wheel else ""
    lacking = (
        f"CUDA {version} has no code for {', '.join(left)}, which its wheels' compiler lacks: "
        "--cuda-home names one that has them"
        for version in sorted({t.cuda for t in targets if t.cuda})
        if lockfile.toolkit(locked, version).front_end and (left := _lacking(manifest, version))
    )
    no_ptx = (
        f"cuda-capabilities {', '.join(map(str, gone))}: CUDA {version} compiles no such PTX"
        for version in sorted({t.cuda for t in targets if t.cuda})
        if (gone := _without_ptx(manifest, version))
    )
    return (*filter(None, [about]), *lacking, *no_ptx)


def _lacking(manifest: Manifest, cuda: Version2) -> tuple[str, ...]:
    """GPUs that a manifest asks for and the wheels' compiler of this CUDA does not serve."""
    asked = {
        arch
        for unit in units.units(manifest, "cuda", cuda)
        if unit.is_cuda
        for arch in unit.archs(cuda)
    }
    return tuple(str(arch) for arch in sorted(asked) if front_end.compiled_as(arch) != arch)


def _without_ptx(manifest: Manifest, cuda: Version2) -> tuple[Arch, ...]:
    """Architectures with PTX that a manifest names for units that get none at all."""
    compiled = [unit for unit in units.units(manifest, "cuda", cuda) if unit.is_cuda]
    left = {
        arch
        for unit in compiled
        for section in unit.sections
        for arch in map(Arch.parse, section.cuda_capabilities or ())
        if arch.ptx and not any(made.ptx for made in unit.archs(cuda))
    }
    return tuple(sorted(left))


def locked_compiler(workspace: Workspace) -> LockedCompiler:
    """The host compiler as a lock records it."""
    return host_compiler.locked(workspace.compiler, run, workspace.store.root / "compilers")


def locked_cross_compilers(
    workspace: Workspace, cpus: Collection[str]
) -> dict[str, LockedCompiler]:
    """The compiler for each other processor, as a lock records it.

    Raises:
        ToolchainError: there is none for one of them.
    """
    return {
        cpu: host_compiler.locked(
            host_compiler.find_cross(cpu, workspace.search_path, run),
            run,
            workspace.store.root / "compilers",
        )
        for cpu in cpus
    }


def other_cross_compiler(lock: Lock, here: Mapping[str, LockedCompiler]) -> str:
    """In words how a compiler for another processor differs from a lock's; else empty."""
    wrong = (lock.cross[cpu].compiler.difference(found) for cpu, found in here.items())
    return "; ".join(filter(None, wrong))
