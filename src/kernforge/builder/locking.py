# SPDX-License-Identifier: Apache-2.0
"""Bring a project's lock up to what a build needs, or refuse to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernforge.artifact.version import Version2
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
from kernforge.toolchain.cuda_arch import Arch
from kernforge.toolchain.lockfile import Lock, LockedCompiler, Tree

# In KERNFORGE_HOME: what was found in the indexes, so that a new project needs no network.
_REMEMBERED = "toolchain.lock"


def needs(workspace: Workspace, targets: Sequence[Target]) -> frozenset[Tree]:
    """What the lock must have to build these targets; of compilers, those for other processors."""
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


def _names(trees: Iterable[Tree]) -> set[str]:
    return {tree.name for tree in trees}


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


def write_lock(workspace: Workspace, wanted: Collection[Tree], *, upgrade: bool) -> Lock:
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
    compilers = locked_compilers(workspace, _names(missing))
    remembered = workspace.store.root.parent / _REMEMBERED
    known = _read_remembered(remembered)
    try:
        found = resolver.make(
            missing,
            workspace.wheels,
            cpu=workspace.cpu,
            compilers=compilers,
            local_parts=workspace.local_parts,
            old=None if upgrade else old,
        )
    except (NetworkError, ToolchainError) as error:
        here = {tree for tree in missing if tree.kind == "python" or tree.name in compilers}
        lacking = resolver.lacking(set(missing) - here, known, workspace.local_parts)
        if upgrade or known is None or lacking or known.platform != f"{workspace.cpu}-linux":
            raise
        part = known.part(_names(missing))
        found = _as_here(replace(part, compilers=compilers), missing, compilers)
        workspace.wheels.progress.note(
            f"{error.message}: the toolchain of earlier builds is locked"
        )
    else:
        if missing:
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
                "files, with `kernforge lock`, and commit it",
            ) from error
    return new


def _as_here(lock: Lock, wanted: Collection[Tree], compilers: Mapping[str, LockedCompiler]) -> Lock:
    """The lock as it is on this machine: with its compilers, and its headers of Python."""
    here = replace(lock, compilers={**lock.compilers, **compilers})
    return here.having(installed.identify_python()) if Tree("python") in wanted else here


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
    toolkits = {tree.version for tree in wanted if tree.kind == "cuda"}
    if note := workspace.local_parts.unused_note(toolkits):
        workspace.wheels.progress.note(f"note: {note}")
    old = read_lock(workspace.project.root)
    _refuse_other_platform(workspace, old)
    missing = resolver.lacking(wanted, old, workspace.local_parts)
    if frozen and (old is None or missing):
        names = ", ".join(map(str, sorted(missing)))
        raise ToolchainError(
            f"{lockfile.FILE_NAME} has no {names or 'content'}",
            hint="run `kernforge lock`, or build without --locked",
        )
    compilers = locked_compilers(workspace, _names(wanted))
    if frozen and old is not None:
        refuse_others(old, compilers, python=Tree("python") in wanted)
    if old is not None and not missing:
        return _as_here(old, wanted, compilers), False
    written = write_lock(workspace, wanted, upgrade=False)
    return _as_here(written, wanted, compilers), True


def refuse_others(lock: Lock, compilers: Mapping[str, LockedCompiler], *, python: bool) -> None:
    """Refuse compilers, and headers of Python, that are not those of a lock."""
    for wrong, remedy in (
        (other_compiler(lock, compilers), "install that compiler (CXX names that of this machine)"),
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
        "`kernforge lock --upgrade`",
    )


def other_python(wanted: Lock) -> str:
    """In words how the headers of Python here differ from a lock's; empty when they do not.

    Raises:
        ToolchainError: the lock names some, and none are installed here.
    """
    there = wanted.trees.get("python")
    if there is None or there.digest == installed.identify_python().digest:
        return ""
    here = installed.identify_python().release
    return f"other headers of Python ({there.release}) than those that are here ({here})"


def toolchain_notes(sources: Sources, targets: Sequence[Target], locked: Lock) -> tuple[str, ...]:
    """What a user should know of the compilers and headers of these targets' device code."""
    name = units.cutlass(sources.manifest) if any(target.cuda for target in targets) else ""
    headers = locked.trees.get(name)
    about = header_libraries.note(name) if headers and headers.wheels else ""
    lacking = (
        f"CUDA {version} has no code for {', '.join(left)}, which its wheels' compiler lacks: "
        "--cuda-home names one that has them"
        for version in sorted({t.cuda for t in targets if t.cuda})
        if locked.toolkit(version).front_end and (left := _lacking(sources, version))
    )
    no_ptx = (
        f"cuda-capabilities {', '.join(map(str, gone))}: CUDA {version} compiles no such PTX"
        for version in sorted({t.cuda for t in targets if t.cuda})
        if (gone := _without_ptx(sources, version))
    )
    return (*filter(None, [about]), *lacking, *no_ptx)


def _lacking(sources: Sources, cuda: Version2) -> tuple[str, ...]:
    """GPUs that a manifest asks for and the wheels' compiler of this CUDA does not serve."""
    asked = {
        arch for unit in sources.units("cuda", cuda) if unit.is_cuda for arch in unit.archs(cuda)
    }
    return tuple(str(arch) for arch in sorted(asked) if front_end.compiled_as(arch) != arch)


def _without_ptx(sources: Sources, cuda: Version2) -> tuple[Arch, ...]:
    """Architectures with PTX that a manifest names for units that get none at all."""
    compiled = [unit for unit in sources.units("cuda", cuda) if unit.is_cuda]
    left = {
        arch
        for unit in compiled
        for section in unit.sections
        for arch in map(Arch.parse, section.cuda_capabilities or ())
        if arch.ptx and not any(made.ptx for made in unit.archs(cuda))
    }
    return tuple(sorted(left))


def locked_compilers(workspace: Workspace, trees: Iterable[str]) -> dict[str, LockedCompiler]:
    """This machine's compilers as a lock records them: its own, and those among trees.

    Args:
        trees: names, as ``aarch64-cxx``; all others are passed over.

    Raises:
        ToolchainError: there is none for another processor.
    """
    found = {"cxx": workspace.compiler}
    for name in trees:
        cpu, is_compiler, _ = name.partition("-cxx")
        if is_compiler:
            found[name] = host_compiler.find_cross(cpu, workspace.search_path, run)
    memory = workspace.store.root / "compilers"
    return {name: host_compiler.locked(each, run, memory) for name, each in found.items()}


def other_compiler(lock: Lock, here: Mapping[str, LockedCompiler]) -> str:
    """In words how the compilers here differ from a lock's; empty when they do not."""
    wrong = (lock.compilers[name].difference(here[name]) for name in here if name in lock.compilers)
    told = "; ".join(filter(None, wrong))
    return f"another compiler: {told}" if told else ""
