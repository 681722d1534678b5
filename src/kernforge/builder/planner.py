# SPDX-License-Identifier: Apache-2.0
"""Manifest + targets + lock -> a graph of actions, made by pure functions.

An action is one run of one program: its argv, its inputs with their digests, its outputs and a
key made of all of these. Two targets whose units need the same run share it. What an action reads
of a toolchain stands in its argv as ``%{root}``; the key holds the root's identity from the lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernforge.artifact.version import Version2
from kernforge.builder import flags, linking
from kernforge.builder.graph import Action, ActionKind, ActionSet, Artifact, Plan
from kernforge.builder.linking import OBJECT
from kernforge.errors import ManifestError
from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Torch
from kernforge.project import units
from kernforge.project.targets import Target
from kernforge.project.units import Sources, Unit
from kernforge.source import op_namespace
from kernforge.source.includes import Closure
from kernforge.toolchain import cuda_arch, front_end
from kernforge.toolchain.cuda_arch import Arch
from kernforge.toolchain.lockfile import Lock, Tree
from kernforge.toolchain.system_headers import SystemHeaders

_ID_LENGTH = 10
_NO_HEADERS = SystemHeaders(lambda _cpu: ())


def make(
    sources: Sources,
    targets: Sequence[Target],
    lock: Lock,
    *,
    static_libstdcxx: bool = True,
    only: tuple[Arch, ...] = (),
    machine: SystemHeaders = _NO_HEADERS,
) -> Plan:
    """Plan a build.

    Args:
        lock: the toolchain; it must have what the targets need.
        static_libstdcxx: whether the host compiler has a ``libstdc++.a``.
        only: narrow device code to these GPUs; empty builds for all that the manifest asks for.
        machine: finds the headers of the machine, which are of no tree of the toolchain.

    Raises:
        ManifestError: a section leaves nothing to compile, or a source is of an unknown kind.
        ToolchainError: the lock lacks something.
    """
    planner = _Planner(sources, lock, static_libstdcxx=static_libstdcxx, only=only, machine=machine)
    artifacts = tuple(planner.artifact(target) for target in targets)
    return Plan(
        actions=tuple(planner.actions.by_key.values()),
        artifacts=artifacts,
        texts=planner.actions.texts,
        sources_id=sources.identity,
        files=sources.paths,
    )


class _Planner:
    """Decides what each unit of each target is compiled with."""

    def __init__(
        self,
        sources: Sources,
        lock: Lock,
        *,
        static_libstdcxx: bool,
        only: tuple[Arch, ...],
        machine: SystemHeaders,
    ) -> None:
        self.manifest, self.sources, self.lock = sources.manifest, sources, lock
        self.static_libstdcxx, self.only, self.machine = static_libstdcxx, only, machine
        self.actions = ActionSet(lock, sources)
        # Targets share their units: what is found for one holds for the next.
        self._archs_of: dict[tuple[str, Version2], tuple[Arch, ...]] = {}
        self._uses: dict[tuple[object, ...], op_namespace.NamespaceUse] = {}

    def artifact(self, target: Target) -> Artifact:
        """Plan one variant."""
        name = f"_{self.manifest.general.python_name}_{target.backend}_"
        ops_name = name + self.sources.identity[:_ID_LENGTH]
        package = _package(self.sources, everything=target.variant.is_noarch)
        if target.variant.is_noarch:
            archs = noarch_archs(self.manifest, target.backend)
            return Artifact(
                target=target, ops_name=ops_name, extension=None, archs=archs, package=package
            )
        chosen = self.sources.units(target.backend, target.cuda)
        if not chosen:
            raise ManifestError(f"build.toml: {target.name} has no source to compile")
        uses = op_namespace.together([self._use(unit, target) for unit in chosen])
        objects = [
            self._compile(unit, target, ops_name, use)
            for unit, use in zip(chosen, uses, strict=True)
        ]
        if "linked" in uses:
            objects.append(linking.namespace(self.actions, target, ops_name))
        linked = linking.link(
            self.actions,
            target,
            ops_name,
            objects,
            static_libstdcxx=self.static_libstdcxx or target.cross,
        )
        return Artifact(
            target=target,
            ops_name=ops_name,
            extension=linked.key,
            archs=self._archs(chosen, target),
            package=package,
        )

    def _compile(
        self, unit: Unit, target: Target, ops_name: str, use: op_namespace.NamespaceUse
    ) -> Action:
        closure = unit.closure
        inputs = [self.actions.file(path) for path in closure.files]
        common = (
            *flags.defines(target, ops_name if use in {"compiled", "module"} else None),
            *([op_namespace.AT_LINK] if use == "linked" else []),
            *(f"-I{directory}" for directory in unit.include),
            # Only where it holds something that the unit may read: every key would change with it.
            *([f"-I{units.COMMON_INCLUDE}"] if any(map(_is_common, closure.files)) else []),
            *self._includes(unit, target, closure),
        )
        framework = closure.reaches_torch
        standard = flags.standard(target) if framework else self._shared_standard(target)
        kind: ActionKind = "cuda" if unit.is_cuda else "c++"
        if kind == "cuda":
            argv = self._device(unit, target, standard, common)
        else:
            argv = (flags.cxx_of(target), *flags.cxx(standard), *common, *unit.cxx_flags)
        where = f" for {target.name}" if framework else ""
        toolkit = "" if target.cuda is None else f", CUDA {target.cuda}"
        title = f"{unit.path}{toolkit}{where}"
        headers = self.machine.read_by(closure.foreign, target.cross_cpu, unit.system_directories)
        whole = (*argv, unit.path, "-o", OBJECT)
        return self.actions.add(
            title, whole, inputs, (OBJECT,), target, kind=kind, source=unit.path, headers=headers
        )

    def _use(self, unit: Unit, target: Target) -> op_namespace.NamespaceUse:
        """How a unit uses the op namespace; what kernforge brings does not use it of itself."""
        of = (unit.path, unit.include, unit.flags, target.torch)
        if of not in self._uses:
            closure, brought = unit.closure, self.sources.brought
            paths = [path for path in closure.files if path not in brought]
            read = units.REGISTRATION in closure.files and not closure.opaque
            self._uses[of] = op_namespace.use(
                [self.sources.texts.get(path, "") for path in paths],
                bundled=read and units.REGISTRATION in brought,
                torch=target.torch,
            )
        return self._uses[of]

    def _device(
        self, unit: Unit, target: Target, standard: str, common: tuple[str, ...]
    ) -> tuple[str, ...]:
        """What compiles a CUDA unit."""
        if target.cuda is None:
            raise ManifestError(f"build.toml: {unit.path} is CUDA, {target.name} is not")
        archs = self._narrowed(unit, target.cuda)
        toolkit = self.lock.toolkit(target.cuda)
        gencode = (part for arch in archs for part in arch.gencode())
        return (
            Tree.of("cuda", target.cuda).at("bin/nvcc"),
            *flags.nvcc(target, standard),
            *front_end.nvcc_flags(toolkit, unit.cuda_flags, unit.path),
            *gencode,
            *flags.for_nvcc(common),
            *unit.cuda_flags,
        )

    def _compiled_for(self, unit: Unit, cuda: Version2) -> tuple[Arch, ...]:
        """Architectures of a unit that the lock's toolkit has."""
        of = (unit.path, cuda)
        if of not in self._archs_of:
            chosen = unit.archs(cuda)
            served = self.lock.toolkit(cuda).front_end
            self._archs_of[of] = front_end.supported(chosen, cuda) if served else chosen
        return self._archs_of[of]

    def _narrowed(self, unit: Unit, cuda: Version2) -> tuple[Arch, ...]:
        """Architectures of a unit, for the wanted GPUs if it serves them."""
        # One that serves none keeps its own: other units may call what it defines.
        return cuda_arch.narrow(self._compiled_for(unit, cuda), self.only)

    def _archs(self, chosen: Sequence[Unit], target: Target) -> tuple[str, ...] | None:
        """Architectures of a CUDA target's device code, over all its units."""
        if target.cuda is None:
            return None
        compiled = [unit for unit in chosen if unit.is_cuda]
        if compiled:  # a GPU that no unit serves is refused
            everything = {a for unit in compiled for a in self._compiled_for(unit, target.cuda)}
            cuda_arch.require(cuda_arch.merged(everything), self.only)
        found = {arch for unit in compiled for arch in self._narrowed(unit, target.cuda)}
        return tuple(sorted(map(str, found)))

    def _shared_standard(self, target: Target) -> str:
        if target.variant.framework == "tvm-ffi":
            return flags.standard(target)
        framework = self.manifest.framework
        return flags.shared_standard(framework.maxver if isinstance(framework, Torch) else None)

    def _includes(self, unit: Unit, target: Target, closure: Closure) -> Iterator[str]:
        """Search paths of what is not the project's own, and the definitions that go with them."""
        if target.cuda and closure.reaches_cutlass and (name := units.cutlass(self.manifest)):
            yield from ("-isystem", Tree(name).at("include"))
        if target.variant.framework == "tvm-ffi" and target.tvm_ffi:
            yield from ("-isystem", Tree.of("tvm-ffi", target.tvm_ffi).at("include"))
        if closure.reaches_torch:
            if target.variant.framework == "torch-stable-abi" and target.variant.version:
                yield f"-D{flags.stable_target(target.variant.version)}"
            yield from flags.torch_includes(target)
        if closure.reaches_python:
            yield from ("-isystem", Tree("python").at())
        # What compiles CUDA finds its own headers.
        if target.cuda and not unit.is_cuda:
            yield from flags.cuda_includes(target.cuda)
        if target.cuda and closure.reaches_cuda_libraries:
            yield from flags.library_includes(target.cuda, self.lock)


def _is_common(path: str) -> bool:
    return path.startswith(f"{units.COMMON_INCLUDE}/")


def _package(sources: Sources, *, everything: bool) -> dict[str, str]:
    """The Python package's files: path in the variant -> path in the project."""
    manifest = sources.manifest
    base = units.package_dir(manifest)
    # Python is shipped whatever the manifest lists, as kernel-builder does.
    shipped = tuple(f".{extension}" for extension in {"py", *manifest.framework.pyext})
    return {
        path.removeprefix(base): path
        for path in sorted(sources.digests)
        if path.startswith(base) and (everything or path.endswith(shipped))
    }


def noarch_archs(manifest: Manifest, backend: str) -> tuple[str, ...] | None:
    """The GPUs that a project of Python alone names for a backend; None when it names none."""
    name = {"cuda": "cuda_capabilities", "rocm": "rocm_archs"}.get(backend, "")
    found: tuple[str, ...] | None = getattr(manifest.framework, name, None)
    return found
