# SPDX-License-Identifier: Apache-2.0
"""The translation units of a target: which sources, with which section's flags and includes.

The rules are those of kernel-builder's CMake files. A source that several sections name is
compiled once: it gets the flags and the architectures of all of them, in the order of the file, and
the include directories of the last one that has any. ``csrc`` is searched by every unit.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from kernforge.artifact.version import Version2
from kernforge.manifest.document import Manifest
from kernforge.manifest.fields import Backend
from kernforge.manifest.model import CudaKernel, KernelSection, TorchNoarch, TvmFfi
from kernforge.source import includes
from kernforge.source.includes import Closure
from kernforge.system import digest
from kernforge.toolchain import cuda_arch
from kernforge.toolchain.cuda_arch import Arch

CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".c")
CUDA_SUFFIXES = (".cu",)
HEADER_SUFFIXES = (
    *(".h", ".hh", ".hpp", ".hxx", ".cuh"),
    *(".inl", ".inc", ".ipp", ".tpp", ".def", ".in"),
)
"""Of files that a source may include."""
COMMON_INCLUDE = "csrc"
REGISTRATION = "torch-ext/registration.h"
"""The header that kernel-builder brings too; what is in ours serves every op namespace."""
_STUB_FLAG = re.compile(r"-?-static-global-template-stub=(true|false)")
_STUB_FLAG_SINCE = (12, 8)
_CUTLASS = "cutlass_"
# Flags that name a directory or a file of the project, joined to it or before it.
_DIRECTORY_FLAGS = ("-isystem", "-iquote", "-idirafter", "--include-path", "-I")
_FILE_FLAGS = ("-include", "--pre-include", "-imacros")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A project's files as a plan sees them.

    Attributes:
        digests: hex SHA-256 of every file by relative path.
        texts: content of those that a compiler could read.
        bundled: text of the headers that kernforge brings, by path; one that the project has
            itself takes its place.
        closures: what ``closure`` found, by all that it depends on: targets share their units.
    """

    digests: Mapping[str, str]
    texts: Mapping[str, str]
    bundled: Mapping[str, str]
    closures: dict[tuple[object, ...], Closure] = field(
        default_factory=dict, compare=False, repr=False
    )

    @functools.cached_property
    def readable(self) -> dict[str, str]:
        """Text of everything that a compiler could read, by path."""
        return {**self.texts, **self.brought}

    @functools.cached_property
    def brought(self) -> dict[str, str]:
        """Text of the bundled headers that the project does not replace, by path.

        A copy of one, as ``kernforge export`` writes it, replaces nothing.
        """
        return {
            path: text
            for path, text in self.bundled.items()
            if self.digests.get(path) in {None, digest.sha256(text)}
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A source with what the tables that name it say of it.

    Attributes:
        include: directories, in search order.
        sections: the CUDA sections that name it.
    """

    path: str
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...] = ()
    sections: tuple[CudaKernel, ...] = ()

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.path.endswith(CUDA_SUFFIXES)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler that compiles it."""
        return self.cuda_flags if self.is_cuda else self.cxx_flags

    @property
    def system_directories(self) -> tuple[str, ...]:
        """Directories outside of the project that its flags name."""
        return tuple(d for d in _in_flags(self.flags)[0] if d.startswith("/"))

    def archs(self, cuda: Version2) -> tuple[Arch, ...]:
        """Architectures of its device code under a toolkit.

        Raises:
            ManifestError: a section's capabilities leave nothing.
        """
        if not self.sections:
            return cuda_arch.defaults(cuda)
        return cuda_arch.merged(
            arch for s in self.sections for arch in cuda_arch.choose(s.cuda_capabilities, cuda)
        )


def units(manifest: Manifest, backend: Backend, cuda: Version2 | None = None) -> tuple[Unit, ...]:
    """What is compiled for a backend, the framework's sources first.

    Args:
        cuda: the toolkit; sections that want a newer one are left out. None leaves out none.
    """
    merged: dict[str, Unit] = {}
    for part in _named(manifest, backend, cuda):
        path = posixpath.normpath(part.path)
        if not path.endswith(CXX_SUFFIXES + CUDA_SUFFIXES):
            continue
        old = merged.get(path)
        if old and any(section in old.sections for section in part.sections):
            continue  # one section names it twice
        merged[path] = replace(part, path=path) if old is None else _joined(old, part)
    return tuple(merged.values())


def closure(unit: Unit, sources: Sources) -> Closure:
    """Which files a unit may read."""
    of = (unit.path, unit.include, unit.flags)
    if of not in sources.closures:
        directories, files = (
            tuple(p for p in paths if not p.startswith("/")) for paths in _in_flags(unit.flags)
        )
        sources.closures[of] = includes.closure(
            unit.path,
            sources.readable,
            (*unit.include, *directories, COMMON_INCLUDE),
            first=files,
            # registration.h takes Python's headers where something else brings them.
            content=sources.brought.keys() & {REGISTRATION},
        )
    return sources.closures[of]


def bundled_headers(manifest: Manifest, sources: Sources) -> dict[str, str]:
    """Text of the headers that kernforge brings and some unit may read, by path.

    ``registration.h`` is not one of them: it only says how a binding becomes a module.
    """
    compiled = {u for backend in manifest.general.backends for u in units(manifest, backend)}
    read = {path for unit in compiled for path in closure(unit, sources).files} - {REGISTRATION}
    return {path: text for path, text in sources.brought.items() if path in read}


def package_dir(manifest: Manifest) -> str:
    """Directory of the Python package in the project."""
    folder = "tvm-ffi-ext" if isinstance(manifest.framework, TvmFfi) else "torch-ext"
    return f"{folder}/{manifest.general.python_name}/"


def cutlass(manifest: Manifest) -> str:
    """The CUTLASS that the manifest depends on, as ``cutlass_3_6``; empty without one.

    It is on the include path of every CUDA unit, whichever section asks for it; of several the
    first one is taken.
    """
    sections = manifest.kernels.values()
    names = (d for s in sections for d in s.depends if d.startswith(_CUTLASS))
    return next(names, "")


def too_old(section: KernelSection, cuda: Version2 | None) -> bool:
    """Whether the toolkit is older than the section asks for."""
    oldest = section.cuda_minver if isinstance(section, CudaKernel) else None
    return bool(oldest and cuda and cuda < oldest)


def _named(manifest: Manifest, backend: Backend, cuda: Version2 | None) -> Iterator[Unit]:
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        for path in framework.src:
            yield Unit(path=path, include=framework.include, cxx_flags=framework.cxx_flags)
    for section in manifest.sections(backend).values():
        if too_old(section, cuda):
            continue
        cuda_section = section if isinstance(section, CudaKernel) else None
        for path in section.src:
            yield Unit(
                path=path,
                include=section.include,
                cxx_flags=section.cxx_flags,
                cuda_flags=_cuda_flags(cuda_section, cuda) if cuda_section else (),
                sections=(cuda_section,) if cuda_section else (),
            )


def _joined(old: Unit, new: Unit) -> Unit:
    return replace(
        old,
        include=new.include or old.include,
        cxx_flags=old.cxx_flags + new.cxx_flags,
        cuda_flags=old.cuda_flags + new.cuda_flags,
        sections=old.sections + new.sections,
    )


def _cuda_flags(section: CudaKernel, cuda: Version2 | None) -> tuple[str, ...]:
    if cuda is None or cuda >= _STUB_FLAG_SINCE:
        return section.cuda_flags
    return tuple(flag for flag in section.cuda_flags if not _STUB_FLAG.fullmatch(flag))


def _in_flags(flags: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Directories and files that flags name; those that begin with / are not the project's."""
    directories: list[str] = []
    files: list[str] = []
    for names, paths in ((_DIRECTORY_FLAGS, directories), (_FILE_FLAGS, files)):
        for number, flag in enumerate(flags):
            name = next((name for name in names if flag.startswith(name)), None)
            if name is None:
                continue
            value = flag.removeprefix(name).removeprefix("=")
            if not value and number + 1 < len(flags):
                value = flags[number + 1]
            paths.append(posixpath.normpath(value))
    return tuple(directories), tuple(files)
