# SPDX-License-Identifier: Apache-2.0
"""Manifest + targets + lock -> a graph of actions, made by functions that touch nothing.

An action is one run of one program: its argv, its inputs with their digests, its outputs and a
key made of all of these. Two targets whose units need the same run share it. What an action reads
of a toolchain stands in its argv as ``%{root}``; the key holds the root's identity from the lock.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge import arch, digest, flags, floor, includes, lockfile
from kernforge.errors import ManifestError, ToolchainError
from kernforge.manifest import CudaKernel, Torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernforge.arch import Arch
    from kernforge.includes import Closure
    from kernforge.lockfile import Lock
    from kernforge.manifest import Backend, KernelSection, Manifest
    from kernforge.matrix import Target

OBJECT = "out.o"
CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".c")
CUDA_SUFFIXES = (".cu",)
BUNDLED_DIR = "kernforge-include"
_STUB_DIR = "stubs"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """A project's files as a plan sees them.

    Attributes:
        digests: hex SHA-256 of every file by relative path.
        texts: content of those that a compiler could read.
        bundled: headers that kernforge brings, by name.
    """

    digests: Mapping[str, str]
    texts: Mapping[str, str]
    bundled: Mapping[str, str]


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


def reaches_aten_cuda(manifest: Manifest, sources: Sources) -> bool:
    """Whether some unit of the CUDA build may read ATen's CUDA headers."""
    units = [unit for unit in _units(manifest, "cuda") if unit.compiled]
    return any(_closure(unit, sources).reaches_aten_cuda for unit in units)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """A source of the manifest with what its table says of it."""

    path: str
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    section: CudaKernel | None = None

    @property
    def compiled(self) -> bool:
        return posixpath.splitext(self.path)[1] in CXX_SUFFIXES + CUDA_SUFFIXES

    @property
    def is_cuda(self) -> bool:
        return self.path.endswith(CUDA_SUFFIXES)


def _units(manifest: Manifest, backend: Backend) -> Iterator[_Unit]:
    framework = manifest.framework
    if isinstance(framework, Torch):
        for path in framework.src:
            yield _Unit(path=path, include=framework.include, cxx_flags=framework.cxx_flags)
    for section in manifest.sections(backend).values():
        for path in section.src:
            yield _Unit(
                path=path,
                include=section.include,
                cxx_flags=section.cxx_flags,
                section=section if isinstance(section, CudaKernel) else None,
            )


def _closure(unit: _Unit, sources: Sources) -> Closure:
    return includes.closure(unit.path, sources.texts, unit.include)


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
        extension = self._link(target, ops_name, self._objects(target, ops_name))
        return Artifact(
            target=target,
            ops_name=ops_name,
            extension=extension.key,
            archs=self._archs(target),
            package=package,
        )

    def _sources_id(self) -> str:
        """Digest of what goes into any variant, so that an edited kernel gets another namespace."""
        used = {p for unit in self._all_units() for p in _closure(unit, self.sources).files}
        used |= set(_package(self.manifest, self.sources, everything=True).values())
        known = {path: self.sources.digests[path] for path in used if path in self.sources.digests}
        return digest.key("sources", manifest=repr(self.manifest), files=known)

    def _all_units(self) -> Iterator[_Unit]:
        for backend in self.manifest.general.backends:
            yield from (unit for unit in _units(self.manifest, backend) if unit.compiled)

    # -- compiling -------------------------------------------------------------------------

    def _objects(self, target: Target, ops_name: str) -> list[Action]:
        found = []
        for unit in _units(self.manifest, target.backend):
            if unit.section and _too_old(unit.section, target):
                continue
            if unit.compiled:
                found.append(self._compile(unit, target, ops_name))
        if not found:
            raise ManifestError(f"build.toml: {target.name} has no source to compile")
        return found

    def _compile(self, unit: _Unit, target: Target, ops_name: str) -> Action:
        closure = _closure(unit, self.sources)
        mentions = any("TORCH_EXTENSION_NAME" in self.sources.texts[p] for p in closure.files)
        mentions = mentions or closure.reaches_torch
        common = [
            *flags.defines(target, ops_name if mentions else None),
            *(f"-I{directory}" for directory in unit.include),
            *(("-Icsrc",) if any(p.startswith("csrc/") for p in closure.files) else ()),
        ]
        inputs = [self._file(path) for path in closure.files if path in self.sources.digests]
        if closure.reaches_torch:
            common += [*flags.stable_target(target), *flags.torch_includes(target)]
        for name, text in self.sources.bundled.items():
            if name in closure.foreign or closure.opaque:
                inputs.append(self._text(f"{BUNDLED_DIR}/{name}", text))
        if any(i.path.startswith(BUNDLED_DIR) for i in inputs):
            common.append(f"-I{BUNDLED_DIR}")
        if closure.reaches_python:
            common += ["-isystem", flags.tree("python")]
        if target.cuda and (not unit.is_cuda or closure.reaches_aten_cuda):
            common += self._cuda_includes(target.cuda, closure)
        standard = flags.standard(target) if closure.reaches_torch else self._shared_standard()
        if unit.is_cuda:
            argv = self._nvcc(
                unit,
                target,
                (
                    *flags.nvcc(standard),
                    *self._gencode(unit, target),
                    *flags.for_nvcc(tuple(common)),
                ),
            )
        else:
            argv = (
                flags.CXX,
                *flags.cxx(standard),
                *common,
                *unit.cxx_flags,
                unit.path,
                "-o",
                OBJECT,
            )
        where = f" for {target.name}" if closure.reaches_torch else ""
        title = (
            f"{unit.path}{where}" if target.cuda is None else f"{unit.path}, {_cuda(target)}{where}"
        )
        return self._add(title, argv, inputs, (OBJECT,), target)

    def _nvcc(self, unit: _Unit, target: Target, arguments: tuple[str, ...]) -> tuple[str, ...]:
        if target.cuda is None:
            raise ManifestError(f"build.toml: {unit.path} is CUDA, {target.name} is not")
        program = flags.tree(flags.cuda_root(target.cuda), "bin/nvcc")
        extra = unit.section.cuda_flags if unit.section else ()
        return (program, *arguments, *extra, unit.path, "-o", OBJECT)

    def _gencode(self, unit: _Unit, target: Target) -> tuple[str, ...]:
        wanted = unit.section.cuda_capabilities if unit.section else None
        chosen = arch.choose(wanted, target.cuda) if target.cuda else ()
        chosen = arch.narrow(chosen, self.only)
        return tuple(part for one in chosen for part in one.gencode())

    def _shared_standard(self) -> str:
        framework = self.manifest.framework
        return flags.shared_standard(framework.maxver if isinstance(framework, Torch) else None)

    def _cuda_includes(self, cuda: tuple[int, int], closure: Closure) -> Iterator[str]:
        toolkit = self._toolkit(cuda)
        yield from ("-isystem", flags.tree(flags.cuda_root(cuda), "include"))
        # The C++ core libraries lie below a directory of their own since CUDA 13.0.
        yield from ("-isystem", flags.tree(flags.cuda_root(cuda), "include/cccl"))
        if closure.reaches_aten_cuda:
            for wheel in toolkit.libraries:
                root = flags.library_root(cuda, wheel.file.partition("-")[0])
                yield from ("-isystem", flags.tree(root, "include"))

    def _archs(self, target: Target) -> tuple[str, ...] | None:
        """Architectures of a CUDA target's device code, over all its sections."""
        if target.cuda is None:
            return None
        sections = [s for s in self.manifest.sections("cuda").values() if isinstance(s, CudaKernel)]
        found: set[Arch] = set()
        for section in sections:
            if not _too_old(section, target) and any(
                p.endswith(CUDA_SUFFIXES) for p in section.src
            ):
                chosen = arch.choose(section.cuda_capabilities, target.cuda)
                found |= set(arch.narrow(chosen, self.only))
        return tuple(sorted(map(str, found)))

    # -- linking ---------------------------------------------------------------------------

    def _link(self, target: Target, ops_name: str, objects: list[Action]) -> Action:
        output = f"{ops_name}.abi3.so"
        names = [f"objects/{number}.o" for number in range(len(objects))]
        inputs = [self._made(o, OBJECT, n) for o, n in zip(objects, names, strict=True)]
        inputs.append(self._compat(target))
        stubs = (*floor.system_stubs(target.variant.cpu), *floor.torch_stubs(target.backend))
        inputs += [self._stub(stub, target) for stub in stubs]
        runtime: tuple[str, ...] = ()
        if target.cuda:
            runtime = (flags.tree(flags.cuda_root(target.cuda), "lib/libcudart_static.a"),)
        link_args = floor.link_args(
            stub_dir=_STUB_DIR,
            backend=target.backend,
            libstdcxx_archive=self.static_libstdcxx,
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
            roots={root: self._identity(root) for root in roots},
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

    def _file(self, path: str) -> Input:
        return Input(path=path, origin="project", name=path, digest=self.sources.digests[path])

    def _text(self, path: str, text: str) -> Input:
        name = digest.sha256(text)
        self.texts[name] = text
        return Input(path=path, origin="text", name=name, digest=name)

    def _made(self, action: Action, output: str, path: str) -> Input:
        made = digest.key("output", action=action.key, output=output)
        return Input(path=path, origin="action", name=f"{action.key}/{output}", digest=made)

    def _identity(self, root: str) -> str:
        """What a tree of the toolchain is, whatever its path."""
        kind, _, rest = root.partition("-")
        if kind in {"cxx", "python"}:
            return digest.key(
                "compiler", of=[self.lock.compiler.identity, self.lock.compiler.target]
            )
        if kind == "torch":
            if rest not in self.lock.torch:
                raise _not_locked(f"torch {rest}")
            return lockfile.wheel_headers_key(self.lock.torch[rest].wheel)
        version, _, library = rest.partition("-")
        major, minor = version.split(".")
        toolkit = self._toolkit((int(major), int(minor)))
        if not library:
            return lockfile.toolkit_key(toolkit)
        (wheel,) = [w for w in toolkit.libraries if w.file.partition("-")[0] == library]
        return lockfile.wheel_headers_key(wheel)

    def _toolkit(self, version: tuple[int, int]) -> lockfile.LockedToolkit:
        name = f"{version[0]}.{version[1]}"
        if name not in self.lock.cuda:
            raise _not_locked(f"CUDA {name}")
        return self.lock.cuda[name]


def _too_old(section: KernelSection, target: Target) -> bool:
    """Whether the target's CUDA is older than the section asks for."""
    oldest = section.cuda_minver if isinstance(section, CudaKernel) else None
    return bool(oldest and target.cuda and target.cuda < oldest)


def _package(manifest: Manifest, sources: Sources, *, everything: bool) -> dict[str, str]:
    """The Python package's files: path in the variant -> path in the project."""
    base = f"torch-ext/{manifest.general.python_name}/"
    shipped = tuple(f".{extension}" for extension in manifest.framework.pyext)
    return {
        path.removeprefix(base): path
        for path in sorted(sources.digests)
        if path.startswith(base) and (everything or path.endswith(shipped))
    }


def _noarch_archs(manifest: Manifest, backend: str) -> tuple[str, ...] | None:
    name = {"cuda": "cuda_capabilities", "rocm": "rocm_archs"}.get(backend, "")
    found: tuple[str, ...] | None = getattr(manifest.framework, name, None)
    return found


def _cuda(target: Target) -> str:
    return f"CUDA {target.cuda[0]}.{target.cuda[1]}" if target.cuda else ""


def _not_locked(what: str) -> ToolchainError:
    return ToolchainError(
        f"the toolchain lock has no {what}",
        hint="run `kernforge lock-toolchain`, or build without --locked",
    )
