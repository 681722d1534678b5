# SPDX-License-Identifier: Apache-2.0
"""Manifest + targets + lock -> a graph of actions, made by functions that touch nothing.

An action is one run of one program: its argv, its inputs with their digests, its outputs and a
key made of all of these. Two targets whose units need the same run share it. What an action reads
of a toolchain stands in its argv as ``%{root}``; the key holds the root's identity from the lock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge import arch, clangflags, digest, flags, floor, lockfile, units
from kernforge.errors import ManifestError
from kernforge.manifest import Torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernforge.arch import Arch
    from kernforge.includes import Closure
    from kernforge.lockfile import Lock
    from kernforge.manifest import Manifest
    from kernforge.matrix import Target
    from kernforge.units import Sources, Unit
    from kernforge.variant import Version2

OBJECT = "out.o"
_STUB_DIR = "stubs"
# How actions are run, as far as it can change a result; see docs/decisions/0010.
_RECIPE = 2
_ROOT = re.compile(r"%\{([\w.+-]+)\}")
_ID_LENGTH = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A file that an action finds in its directory.

    Attributes:
        path: where, relative to the directory.
        origin: ``"project"``, ``"text"`` or ``"action"``.
        name: the project's path, the text's digest, or ``<action key>/<output>``.
        digest: of the content; for another action's output, of that action's key and its name.
    """

    path: str
    origin: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One run of one program.

    Attributes:
        title: what a person calls it.
        argv: program and arguments; ``%{root}`` stands for a tree of the toolchain.
        inputs: the files that it finds, and no others.
        outputs: the files that it makes, relative to its directory.
        roots: the trees that its argv names.
        key: of everything above but the title.
        variants: names of the targets that need it.
    """

    title: str
    argv: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    roots: tuple[str, ...]
    key: str
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One variant's directory, as it will be laid out.

    Attributes:
        target: what it is for.
        ops_name: op namespace, extension module and module name.
        extension: key of the link action; None without machine code.
        archs: architectures of its device code.
        package: path in the variant -> path in the project.
    """

    target: Target
    ops_name: str
    extension: str | None
    archs: tuple[str, ...] | None
    package: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a build will do.

    Attributes:
        actions: in an order in which each comes after those it needs.
        artifacts: what comes out.
        texts: generated files by digest.
        sources_id: names the sources that go into any variant.
    """

    actions: tuple[Action, ...]
    artifacts: tuple[Artifact, ...]
    texts: Mapping[str, str]
    sources_id: str

    @property
    def roots(self) -> tuple[str, ...]:
        """Every toolchain tree that some action reads."""
        return tuple(sorted({root for action in self.actions for root in action.roots}))


def make(
    manifest: Manifest,
    sources: Sources,
    targets: Sequence[Target],
    lock: Lock,
    *,
    python: str,
    static_libstdcxx: bool = True,
    only: tuple[Arch, ...] = (),
) -> Plan:
    """Plan a build.

    Args:
        manifest: the project's.
        sources: its files.
        targets: the variants to build.
        lock: the toolchain; it must have what the targets need.
        python: version of the Python whose headers are there, for sources that include them.
        static_libstdcxx: whether the host compiler has a ``libstdc++.a``.
        only: narrow device code to these GPUs; empty builds for all that the manifest asks for.

    Raises:
        ManifestError: a section leaves nothing to compile, or a source is of an unknown kind.
        ToolchainError: the lock lacks something.
    """
    planner = _Planner(
        manifest, sources, lock, python, static_libstdcxx=static_libstdcxx, only=only
    )
    artifacts = tuple(planner.artifact(target) for target in targets)
    return Plan(
        actions=tuple(planner.actions.values()),
        artifacts=artifacts,
        texts=planner.texts,
        sources_id=planner.sources_id,
    )


def wants_cuda_libraries(manifest: Manifest, sources: Sources) -> bool:
    """Whether some unit of the CUDA build may read headers of CUDA's libraries."""
    found = units.units(manifest, "cuda")
    return any(units.closure(unit, sources).reaches_cuda_libraries for unit in found)


class _Planner:
    """Collects actions; each is made once however many targets ask for it."""

    def __init__(
        self,
        manifest: Manifest,
        sources: Sources,
        lock: Lock,
        python: str,
        *,
        static_libstdcxx: bool,
        only: tuple[Arch, ...],
    ) -> None:
        self.manifest, self.sources, self.lock, self.python = manifest, sources, lock, python
        self.static_libstdcxx, self.only = static_libstdcxx, only
        self.actions: dict[str, Action] = {}
        self.texts: dict[str, str] = {}
        self._closures: dict[Unit, Closure] = {}
        self.sources_id = self._sources_id()

    def artifact(self, target: Target) -> Artifact:
        name = f"_{self.manifest.general.python_name}_{target.backend}_"
        ops_name = name + self.sources_id[:_ID_LENGTH]
        package = _package(self.manifest, self.sources, everything=target.variant.is_noarch)
        if target.variant.is_noarch:
            archs = _noarch_archs(self.manifest, target.backend)
            return Artifact(
                target=target, ops_name=ops_name, extension=None, archs=archs, package=package
            )
        chosen = units.units(self.manifest, target.backend, target.cuda)
        if not chosen:
            raise ManifestError(f"build.toml: {target.name} has no source to compile")
        objects = [self._compile(unit, target, ops_name) for unit in chosen]
        return Artifact(
            target=target,
            ops_name=ops_name,
            extension=self._link(target, ops_name, objects).key,
            archs=self._archs(chosen, target),
            package=package,
        )

    def _sources_id(self) -> str:
        """Digest of what goes into any variant, so that an edited kernel gets another namespace."""
        backends = self.manifest.general.backends
        found = (unit for backend in backends for unit in units.units(self.manifest, backend))
        used = {path for unit in found for path in self._closure(unit).files}
        used |= set(_package(self.manifest, self.sources, everything=True).values())
        known = {path: self.sources.digests[path] for path in used if path in self.sources.digests}
        return digest.key("sources", manifest=repr(self.manifest), files=known)

    def _closure(self, unit: Unit) -> Closure:
        if unit not in self._closures:
            self._closures[unit] = units.closure(unit, self.sources)
        return self._closures[unit]

    # -- compiling -------------------------------------------------------------------------

    def _compile(self, unit: Unit, target: Target, ops_name: str) -> Action:
        closure = self._closure(unit)
        inputs = [self._file(path) for path in closure.files]
        mentions = any(flags.mentions_ops_name(self._text_of(path)) for path in closure.files)
        common = (
            *flags.defines(target, ops_name if mentions else None),
            *(f"-I{directory}" for directory in unit.include),
            *_common_include(closure),
            *self._includes(unit, target, closure),
        )
        framework = closure.reaches_torch
        standard = flags.standard(target) if framework else self._shared_standard(target)
        if unit.is_cuda:
            argv = self._device(unit, target, standard, common)
            if clangflags.HOST_HEADER in argv:
                inputs.append(self._text(clangflags.HOST_HEADER, clangflags.host_header()))
        else:
            argv = (flags.CXX, *flags.cxx(standard), *common, *unit.cxx_flags)
        where = f" for {target.name}" if framework else ""
        toolkit = "" if target.cuda is None else f", CUDA {target.cuda[0]}.{target.cuda[1]}"
        title = f"{unit.path}{toolkit}{where}"
        return self._add(title, (*argv, unit.path, "-o", OBJECT), inputs, (OBJECT,), target)

    def _device(
        self, unit: Unit, target: Target, standard: str, common: tuple[str, ...]
    ) -> tuple[str, ...]:
        """What compiles a CUDA unit: nvcc, or clang where the lock says so."""
        if target.cuda is None:
            raise ManifestError(f"build.toml: {unit.path} is CUDA, {target.name} is not")
        archs = self._narrowed(unit, target.cuda)
        if lockfile.toolkit(self.lock, target.cuda).clang:
            return (
                *clangflags.clang(target, target.cuda, standard, archs, unit.path),
                *common,
                *clangflags.translate(unit.cuda_flags, unit.path),
            )
        gencode = (part for one in archs for part in one.gencode())
        return (
            flags.tree(flags.cuda_root(target.cuda), "bin/nvcc"),
            *flags.nvcc(target, standard),
            *gencode,
            *flags.for_nvcc(common),
            *unit.cuda_flags,
        )

    def _narrowed(self, unit: Unit, cuda: Version2) -> tuple[Arch, ...]:
        """Architectures of a unit, for the wanted GPUs if it serves them."""
        # One that serves none keeps its own: other units may call what it defines.
        chosen = unit.archs(cuda)
        return chosen if not arch.serves(chosen, self.only) else arch.narrow(chosen, self.only)

    def _archs(self, chosen: Sequence[Unit], target: Target) -> tuple[str, ...] | None:
        """Architectures of a CUDA target's device code, over all its units."""
        if target.cuda is None:
            return None
        compiled = [unit for unit in chosen if unit.is_cuda]
        if compiled and self.only:
            everything = {one for unit in compiled for one in unit.archs(target.cuda)}
            arch.narrow(tuple(sorted(everything)), self.only)  # refuses a GPU that nothing serves
        found = {one for unit in compiled for one in self._narrowed(unit, target.cuda)}
        return tuple(sorted(map(str, found)))

    def _shared_standard(self, target: Target) -> str:
        if target.variant.framework == "tvm-ffi":
            return flags.standard(target)
        framework = self.manifest.framework
        return flags.shared_standard(framework.maxver if isinstance(framework, Torch) else None)

    def _includes(self, unit: Unit, target: Target, closure: Closure) -> Iterator[str]:
        """Search paths of what is not the project's own, and the definitions that go with them."""
        if target.cuda and closure.reaches_cutlass and (name := units.cutlass(self.manifest)):
            yield from ("-isystem", flags.tree(name, "include"))
        if target.variant.framework == "tvm-ffi" and target.tvm_ffi:
            yield from ("-isystem", flags.tree(flags.tvm_ffi_root(target.tvm_ffi), "include"))
        if closure.reaches_torch:
            yield from (*flags.stable_target(target), *flags.torch_includes(target))
        if closure.reaches_python:
            yield from ("-isystem", flags.tree("python"))
        # What compiles CUDA finds its own headers.
        if target.cuda and not unit.is_cuda:
            yield from flags.cuda_includes(target.cuda)
        if target.cuda and closure.reaches_cuda_libraries:
            for wheel in lockfile.toolkit(self.lock, target.cuda).libraries:
                root = flags.library_root(target.cuda, wheel.file.partition("-")[0])
                yield from ("-isystem", flags.tree(root, "include"))

    # -- linking ---------------------------------------------------------------------------

    def _link(self, target: Target, ops_name: str, objects: list[Action]) -> Action:
        tvm_ffi = target.variant.framework == "tvm-ffi"
        output = f"{ops_name}.so" if tvm_ffi else f"{ops_name}.abi3.so"
        needed = floor.TVM_FFI if tvm_ffi else floor.torch_sonames(target.backend)
        names = [f"objects/{number}.o" for number in range(len(objects))]
        inputs = [self._made(o, OBJECT, n) for o, n in zip(objects, names, strict=True)]
        inputs.append(self._compat(target))
        stubs = (*floor.system_stubs(target.variant.cpu), *floor.empty_stubs(needed))
        inputs += [self._stub(stub, target) for stub in stubs]
        runtime: tuple[str, ...] = ()
        if target.cuda:
            runtime = (flags.tree(flags.cuda_root(target.cuda), "lib64/libcudart_static.a"),)
        link_args = floor.link_args(
            stub_dir=_STUB_DIR,
            backend=target.backend,
            libstdcxx_archive=self.static_libstdcxx,
            needed=needed,
        )
        argv = (flags.CXX, "-o", output, *names, *runtime, *link_args)
        return self._add(f"link {target.name}", argv, inputs, (output,), target)

    def _compat(self, target: Target) -> Input:
        text = self._text(floor.COMPAT_SOURCE, floor.compat_source())
        argv = floor.compat_argv(cxx=flags.CXX, out_dir=".")
        action = self._add("the ABI floor's extras", argv, [text], (floor.COMPAT_OBJECT,), target)
        return self._made(action, floor.COMPAT_OBJECT, f"{_STUB_DIR}/{floor.COMPAT_OBJECT}")

    def _stub(self, stub: floor.StubLibrary, target: Target) -> Input:
        inputs = [
            self._text(stub.source_file, stub.source),
            self._text(stub.script_file, stub.version_script),
        ]
        argv = floor.stub_argv(stub, cxx=flags.CXX, out_dir=".")
        action = self._add(f"stub of {stub.soname}", argv, inputs, (stub.file,), target)
        return self._made(action, stub.file, f"{_STUB_DIR}/{stub.file}")

    # -- actions and their inputs ----------------------------------------------------------

    def _add(
        self,
        title: str,
        argv: Sequence[str],
        inputs: Sequence[Input],
        outputs: tuple[str, ...],
        target: Target,
    ) -> Action:
        roots = tuple(sorted({r for part in argv for r in _ROOT.findall(part)} - {"threads"}))
        ordered = tuple(sorted(inputs, key=lambda i: i.path))
        key = digest.key(
            "action",
            argv=list(argv),
            inputs={i.path: i.digest for i in ordered},
            outputs=list(outputs),
            recipe=_RECIPE,
            roots={root: lockfile.identity(root, self.lock, self.python) for root in roots},
        )
        old = self.actions.get(key)
        action = old or Action(
            title=title,
            argv=tuple(argv),
            inputs=ordered,
            outputs=outputs,
            roots=roots,
            key=key,
        )
        if target.name not in action.variants:
            action = replace(action, variants=(*action.variants, target.name))
        self.actions[key] = action
        return action

    def _text_of(self, path: str) -> str:
        return self.sources.texts.get(path) or self.sources.brought.get(path, "")

    def _file(self, path: str) -> Input:
        if path not in self.sources.digests:
            return self._text(path, self.sources.brought[path])
        return Input(path=path, origin="project", name=path, digest=self.sources.digests[path])

    def _text(self, path: str, text: str) -> Input:
        name = digest.sha256(text)
        self.texts[name] = text
        return Input(path=path, origin="text", name=name, digest=name)

    def _made(self, action: Action, output: str, path: str) -> Input:
        made = digest.key("output", action=action.key, output=output)
        return Input(path=path, origin="action", name=f"{action.key}/{output}", digest=made)


def _common_include(closure: Closure) -> tuple[str, ...]:
    # Only where it holds something that the unit may read, or every key would change with it.
    prefix = f"{units.COMMON_INCLUDE}/"
    return (f"-I{prefix[:-1]}",) if any(p.startswith(prefix) for p in closure.files) else ()


def _package(manifest: Manifest, sources: Sources, *, everything: bool) -> dict[str, str]:
    """The Python package's files: path in the variant -> path in the project."""
    base = units.package_dir(manifest)
    # Python is shipped whatever the manifest lists, as kernel-builder does.
    shipped = tuple(f".{extension}" for extension in {"py", *manifest.framework.pyext})
    return {
        path.removeprefix(base): path
        for path in sorted(sources.digests)
        if path.startswith(base) and (everything or path.endswith(shipped))
    }


def _noarch_archs(manifest: Manifest, backend: str) -> tuple[str, ...] | None:
    name = {"cuda": "cuda_capabilities", "rocm": "rocm_archs"}.get(backend, "")
    found: tuple[str, ...] | None = getattr(manifest.framework, name, None)
    return found
