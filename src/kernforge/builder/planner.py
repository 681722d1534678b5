# SPDX-License-Identifier: Apache-2.0
"""Manifest + targets + lock -> a graph of actions, made by pure functions.

An action is one run of one program: its argv, its inputs with their digests, its outputs and a
key made of all of these. Two targets whose units need the same run share it. What an action reads
of a toolchain stands in its argv as ``%{root}``; the key holds the root's identity from the lock.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from kernforge.artifact.gpu import Arch
from kernforge.builder import flags
from kernforge.builder.flags import OBJECT
from kernforge.builder.graph import Action, ActionSet, Artifact, Plan
from kernforge.errors import ManifestError
from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Torch
from kernforge.project import units
from kernforge.project.targets import Target
from kernforge.project.units import Sources, Unit
from kernforge.source import op_namespace, torch_headers
from kernforge.source.includes import Closure
from kernforge.toolchain import cuda_arch, front_end
from kernforge.toolchain.lockfile import Lock, Tree

_ID_LENGTH = 10


def make(
    sources: Sources,
    targets: Sequence[Target],
    lock: Lock,
    *,
    static_libstdcxx: bool = True,
    only: tuple[Arch, ...] = (),
) -> Plan:
    """Plan a build.

    Args:
        only: narrow device code to these GPUs; empty builds for all that the manifest asks for.
    """
    planner = _Planner(sources, lock, static_libstdcxx, only)
    artifacts = tuple(planner.artifact(target) for target in targets)
    return Plan(
        actions=tuple(planner.actions.by_key.values()),
        artifacts=artifacts,
        texts=planner.actions.texts,
        sources_id=sources.identity,
        files=sources.paths,
    )


@dataclass
class _Planner:
    """Decides what each unit of each target is compiled with; fields are arguments of ``make``."""

    sources: Sources
    lock: Lock
    static_libstdcxx: bool
    only: tuple[Arch, ...]
    # Targets share their units: the namespace use of one holds for the next.
    _uses: dict[tuple[object, ...], op_namespace.NamespaceUse] = field(default_factory=dict)

    @property
    def manifest(self) -> Manifest:
        """The project's."""
        return self.sources.manifest

    @functools.cached_property
    def actions(self) -> ActionSet:
        """The actions planned so far."""
        return ActionSet(self.lock, self.sources)

    def artifact(self, target: Target) -> Artifact:
        """Plan one variant."""
        manifest = self.manifest
        name = f"_{manifest.general.python_name}_{target.backend}_"
        planned = Artifact(
            target=target,
            ops_name=name + self.sources.identity[:_ID_LENGTH],
            extension=None,
            archs=noarch_archs(manifest, target.backend),
            package=_package(self.sources, everything=target.variant.is_noarch),
        )
        if target.variant.is_noarch:
            return planned
        chosen = self.sources.units(target.backend, target.cuda)
        if not chosen:
            raise ManifestError(f"build.toml: {target.name} has no source to compile")
        compiled = {a for u in chosen if u.is_cuda for a in self._all_archs(u, target)}
        if compiled:  # a GPU that no unit serves is refused
            cuda_arch.require(cuda_arch.merged(compiled), self.only)
        uses = op_namespace.together([self._use(unit, target) for unit in chosen])
        objects = [
            self._compile(unit, target, planned.ops_name, use)
            for unit, use in zip(chosen, uses, strict=True)
        ]
        archs = {arch for each in objects for arch in each.archs}
        if "linked" in uses:
            objects.append(flags.namespace(self.actions, target, planned.ops_name))
        linked = flags.link(
            self.actions,
            target,
            planned.ops_name,
            objects,
            static_libstdcxx=self.static_libstdcxx or target.cross,
        )
        return replace(
            planned,
            extension=linked.key,
            archs=tuple(sorted(archs)) if target.cuda else None,
        )

    def _compile(
        self, unit: Unit, target: Target, ops_name: str, use: op_namespace.NamespaceUse
    ) -> Action:
        closure = unit.closure
        common = (
            *flags.defines(target, ops_name if use in {"compiled", "module"} else None),
            *([op_namespace.AT_LINK] if use == "linked" else []),
            *(f"-I{directory}" for directory in unit.include),
            # Only where it holds something that the unit may read: every key would change with it.
            *([f"-I{units.COMMON_INCLUDE}"] if any(map(_is_common, closure.files)) else []),
            *self._includes(unit, target, closure),
        )
        reads_torch = closure.reaches_torch
        standard = flags.standard(target) if reads_torch else self._shared_standard(target)
        archs: tuple[Arch, ...] = ()
        if unit.is_cuda:
            # One that serves none of the wanted GPUs keeps its own architectures: other units may
            # call what it defines.
            archs = cuda_arch.narrow(self._all_archs(unit, target), self.only)
            argv = self._nvcc(unit, target, standard, archs, common)
        else:
            argv = (flags.cxx_of(target), *flags.cxx(standard), *common, *unit.cxx_flags)
        toolkit = "" if target.cuda is None else f", CUDA {target.cuda}"
        where = f" for {target.name}" if reads_torch else toolkit
        return self.actions.add(
            f"{unit.path}{where}",
            (*argv, unit.path, "-o", OBJECT),
            [self.actions.file(path) for path in closure.files],
            (OBJECT,),
            target,
            kind="cuda" if unit.is_cuda else "c++",
            source=unit.path,
            archs=map(str, archs),
            slim=target.torch is not None and torch_headers.may_be_slim(closure),
        )

    def _use(self, unit: Unit, target: Target) -> op_namespace.NamespaceUse:
        """How a unit uses the op namespace; default headers alone do not use it."""
        of = (unit.path, unit.include, unit.flags, target.torch)
        if of not in self._uses:
            closure, defaults = unit.closure, self.sources.default_headers
            paths = [path for path in closure.files if path not in defaults]
            read = units.REGISTRATION in closure.files and not closure.opaque
            self._uses[of] = op_namespace.use(
                [self.sources.texts.get(path, "") for path in paths],
                bundled=read and units.REGISTRATION in defaults,
                torch=target.torch,
            )
        return self._uses[of]

    def _nvcc(
        self,
        unit: Unit,
        target: Target,
        standard: str,
        archs: tuple[Arch, ...],
        common: tuple[str, ...],
    ) -> tuple[str, ...]:
        toolkit = self.lock.toolkit(target.cuda)
        return (
            toolkit.at("bin/nvcc"),
            *flags.nvcc(target, standard),
            *front_end.nvcc_flags(toolkit, unit.cuda_flags, unit.path),
            *(part for arch in archs for part in arch.gencode()),
            *flags.for_nvcc(common),
            *unit.cuda_flags,
        )

    def _all_archs(self, unit: Unit, target: Target) -> tuple[Arch, ...]:
        """Architectures of a unit that the lock's toolkit has."""
        if target.cuda is None:
            raise ManifestError(f"build.toml: {unit.path} is CUDA, {target.name} is not")
        served = self.lock.toolkit(target.cuda).front_end
        return front_end.supported(unit.archs, target.cuda) if served else unit.archs

    def _shared_standard(self, target: Target) -> str:
        framework = self.manifest.framework
        if target.variant.framework == "tvm-ffi":
            return flags.standard(target)
        return flags.shared_standard(framework.maxver if isinstance(framework, Torch) else None)

    def _includes(self, unit: Unit, target: Target, closure: Closure) -> Iterator[str]:
        """Search paths of what is not the project's own, and the definitions that go with them."""
        if target.cuda and closure.reaches_cutlass and (name := units.cutlass(self.manifest)):
            yield from ("-isystem", Tree(name).at("include"))
        if target.tvm_ffi:
            yield from ("-isystem", Tree.of("tvm-ffi", target.tvm_ffi).at("include"))
        if closure.reaches_torch:
            if target.variant.framework == "torch-stable-abi" and target.variant.version:
                yield f"-D{flags.stable_target(target.variant.version)}"
            yield from flags.torch_includes(target)
        if closure.reaches_python:
            yield from ("-isystem", Tree("python").at())
        # nvcc finds CUDA's headers itself.
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
    names: tuple[str, ...] | None = getattr(manifest.framework, name, None)
    return names
