# SPDX-License-Identifier: Apache-2.0
"""Sources of a project, and the translation units of a target.

A unit is a source with its sections' flags and includes, and the files that it may read. The rules
are those of kernel-builder's CMake files. A source that several sections name is compiled once: it
gets the flags and the architectures of all of them, in the order of the file, and the include
directories of the last one that has any. ``csrc`` is searched by every unit.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.manifest.document import Manifest
from kernforge.manifest.model import Backend, CudaKernel, Torch, TorchNoarch, TvmFfi
from kernforge.source import includes
from kernforge.source.includes import Closure
from kernforge.system import digest, files
from kernforge.toolchain import cuda_arch

CXX_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".c")
CUDA_SUFFIXES = (".cu",)
HEADER_SUFFIXES = (
    *(".h", ".hh", ".hpp", ".hxx", ".cuh"),
    *(".inl", ".inc", ".ipp", ".tpp", ".def", ".in"),
)
"""Of files that a source may include."""
COMMON_INCLUDE = "csrc"
REGISTRATION = "torch-ext/registration.h"
"""Header of kernel-builder; the bundled one serves every op namespace."""
_STUB_FLAG = re.compile(r"-?-static-global-template-stub=(true|false)")
_STUB_FLAG_SINCE = (12, 8)
_CUTLASS = "cutlass_"
# Flags that name a directory or a file of the project, joined to it or before it.
_DIRECTORY_FLAGS = ("-isystem", "-iquote", "-idirafter", "--include-path", "-I")
_FILE_FLAGS = ("-include", "--pre-include", "-imacros")

# Bundled headers, each at its path in a project.
_INCLUDE = Path(str(resources.files("kernforge"))) / "include"
BUNDLED_DIRECTORIES = tuple(str(_INCLUDE / name) for name in ("torch-ext", "csrc"))
"""Search path of bundled headers for compilers outside of a plan."""
_NAMED = "kernforge/"
_TEXT_SUFFIXES = (*CXX_SUFFIXES, *CUDA_SUFFIXES, *HEADER_SUFFIXES)
_NOTHING = Closure(files=(), foreign=(), opaque=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A source file with its flags and includes.

    Attributes:
        include: directories, in search order.
        sections: the CUDA sections that name it.
        archs: of its device code, under the toolkit that the units were asked for.
        closure: the files that it may read.
    """

    path: str
    include: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    cuda_flags: tuple[str, ...] = ()
    sections: tuple[CudaKernel, ...] = ()
    archs: tuple[Arch, ...] = ()
    closure: Closure = field(default=_NOTHING, compare=False, repr=False)

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.path.endswith(CUDA_SUFFIXES)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of the compiler that compiles it."""
        return self.cuda_flags if self.is_cuda else self.cxx_flags


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Files of a project that a build reads.

    Attributes:
        digests: hex SHA-256 of every file by relative path.
        texts: content of those that a compiler could read.
        bundled: text of the bundled headers by path; the project may replace them.
    """

    manifest: Manifest
    digests: Mapping[str, str]
    texts: Mapping[str, str]
    bundled: Mapping[str, str]
    paths: Mapping[str, Path] = field(default_factory=dict)
    # Caches: targets share their units, and units of several backends their files.
    _units: dict[tuple[Backend, Version2 | None], tuple[Unit, ...]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _closures: dict[tuple[object, ...], Closure] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    @functools.cached_property
    def readable(self) -> dict[str, str]:
        """Text of every file that a compiler may read, by path."""
        return {**self.texts, **self.default_headers}

    @functools.cached_property
    def default_headers(self) -> dict[str, str]:
        """Text of the bundled headers that the project does not replace, by path.

        A copy of one, as ``kernforge export`` writes it, replaces nothing.
        """
        return {
            path: text
            for path, text in self.bundled.items()
            if self.digests.get(path) in {None, digest.sha256(text)}
        }

    @functools.cached_property
    def bundled_headers(self) -> dict[str, str]:
        """Text of the default headers that some unit may read, by path.

        ``registration.h`` is not one of them: it only says how a binding becomes a module.
        """
        read = self._read - {REGISTRATION}
        return {path: text for path, text in self.default_headers.items() if path in read}

    @functools.cached_property
    def identity(self) -> str:
        """Digest of the sources of all variants, which names the op namespace."""
        package = package_dir(self.manifest)
        used = self._read | {path for path in self.digests if path.startswith(package)}
        own = self.digests.keys() - self.default_headers.keys()
        known = {path: self.digests[path] for path in used & own}
        known |= {path: digest.sha256(text) for path, text in self.bundled_headers.items()}
        return digest.key("sources", manifest=self.manifest.content, files=known)

    @functools.cached_property
    def _read(self) -> set[str]:
        """The files that some unit may read."""
        compiled = (unit for name in self.manifest.general.backends for unit in self.units(name))
        return {path for unit in compiled for path in unit.closure.files}

    def units(self, backend: Backend, cuda: Version2 | None = None) -> tuple[Unit, ...]:
        """Translation units of a backend, the framework's first.

        Args:
            cuda: the toolkit; sections that want a newer one are left out. None leaves out none.
        """
        if (backend, cuda) not in self._units:
            merged: dict[str, Unit] = {}
            for part in _named(self.manifest, backend, cuda):
                path = posixpath.normpath(part.path)
                if not path.endswith(CXX_SUFFIXES + CUDA_SUFFIXES):
                    continue
                old = merged.get(path)
                if old and any(section in old.sections for section in part.sections):
                    continue  # one section names it twice
                merged[path] = replace(part, path=path) if old is None else _joined(old, part)
            self._units[backend, cuda] = tuple(
                replace(unit, closure=self._closure(unit), archs=_archs(unit, cuda))
                for unit in merged.values()
            )
        return self._units[backend, cuda]

    def _closure(self, unit: Unit) -> Closure:
        """Include closure of a unit."""
        of = (unit.path, unit.include, unit.flags)
        if of not in self._closures:
            directories, first = (
                tuple(p for p in paths if not p.startswith("/")) for paths in _in_flags(unit.flags)
            )
            self._closures[of] = includes.closure(
                unit.path,
                self.readable,
                (*unit.include, *directories, COMMON_INCLUDE),
                first=first,
                # registration.h takes Python's headers where something else includes them.
                content=self.default_headers.keys() & {REGISTRATION},
            )
        return self._closures[of]


def read(manifest: Manifest, paths: Mapping[str, Path]) -> Sources:
    """Read the sources of a project, and hash the files of a build."""
    package = package_dir(manifest)
    texts = {
        path: real.read_text(errors="replace")
        for path, real in paths.items()
        if path.endswith(_TEXT_SUFFIXES)
    }
    _read_included(texts, paths)
    # An extension that was built in place is no source.
    made = f"{package}_{manifest.general.python_name}_"
    hashed = {*texts, *(path for path in paths if path.startswith(package))} - {f"{package}_ops.py"}
    hashed = {path for path in hashed if not (path.startswith(made) and path.endswith(".so"))}
    return Sources(
        manifest=manifest,
        digests={path: files.sha256_file(paths[path]) for path in sorted(hashed)},
        texts=texts,
        bundled=_bundled(manifest, texts.values()),
        paths=paths,
    )


def bundled_path(path: str) -> Path:
    """File of a bundled header; ``path`` is its path in a project."""
    return _INCLUDE / path


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


def _bundled(manifest: Manifest, texts: Iterable[str]) -> dict[str, str]:
    """Bundled headers for a project; ``kernforge/`` only if a source names that directory.

    An include that names a macro may read any file, and such a unit's key must not change with
    headers that the project knows nothing of.
    """
    framework = manifest.framework
    if isinstance(framework, TorchNoarch):
        return {}
    paths = [REGISTRATION] if isinstance(framework, Torch) else []
    if any(_NAMED in text for text in texts):
        paths += [path.relative_to(_INCLUDE).as_posix() for path in _INCLUDE.glob(f"*/{_NAMED}*")]
    return {path: bundled_path(path).read_text() for path in sorted(paths)}


def _read_included(texts: dict[str, str], there: Mapping[str, Path]) -> None:
    """Add included files with an unknown extension."""
    todo = list(texts.values())
    while todo:
        named = set().union(*map(includes.base_names, todo))
        todo = []
        for path, real in there.items():
            if path not in texts and posixpath.basename(path) in named:
                texts[path] = real.read_text(errors="replace")
                todo.append(texts[path])


def _named(manifest: Manifest, backend: Backend, cuda: Version2 | None) -> Iterator[Unit]:
    framework = manifest.framework
    if not isinstance(framework, TorchNoarch):
        for path in framework.src:
            yield Unit(path=path, include=framework.include, cxx_flags=framework.cxx_flags)
    for section in manifest.sections(backend).values():
        cuda_section = section if isinstance(section, CudaKernel) else None
        oldest = cuda_section.cuda_minver if cuda_section else None
        if oldest and cuda and cuda < oldest:
            continue
        for path in section.src:
            yield Unit(
                path=path,
                include=section.include,
                cxx_flags=section.cxx_flags,
                cuda_flags=_cuda_flags(cuda_section, cuda) if cuda_section else (),
                sections=(cuda_section,) if cuda_section else (),
            )


def _archs(unit: Unit, cuda: Version2 | None) -> tuple[Arch, ...]:
    if cuda is None or not unit.is_cuda:
        return ()
    if not unit.sections:
        return cuda_arch.defaults(cuda)
    return cuda_arch.merged(
        arch for s in unit.sections for arch in cuda_arch.choose(s.cuda_capabilities, cuda)
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
    """Directories and files in flags; absolute ones are outside of the project."""
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
