# SPDX-License-Identifier: Apache-2.0
"""Read the sources of an extension, follow their includes, and see whether they have changed.

A request that cannot succeed is refused here, before a compiler is started for it.

A file with the same size, times of change and inode has the same content, unless it changed so
shortly before it was read that another change could have the same time. No program can set the time
of the inode: it shows a change also if the time of the content was set back.
"""

from __future__ import annotations

import os
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeAlias

from kernforge.errors import BuildError, UsageError
from kernforge.extension import flags, machine
from kernforge.extension.device.units import ExtensionUnit
from kernforge.extension.flags import Flags
from kernforge.extension.plan import Extension
from kernforge.source import includes, mistakes, op_schema
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.source.includes import Closure
from kernforge.source.op_namespace import EXTENSION_NAME
from kernforge.system import digest
from kernforge.system.files import sha256_file

Stamp: TypeAlias = tuple[int, int, int, int]
"""Size, time of change in nanoseconds, inode, and when the inode changed, in nanoseconds."""
_TIMESTAMP_NS = 2_000_000_000  # the coarsest time stamps in use are those of FAT
_PROJECT = "src"  # a project's directory in that of an action
_OPAQUE_LIMIT = 5000  # how many headers an include of a macro may name at most
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", "")
SUFFIXES = (
    *(".cpp", ".cc", ".cxx", ".c++", ".cp", ".C", ".CPP", ".c", ".ii", ".i", ".s", ".S"),
    *CUDA_SUFFIXES,
)
"""Suffixes of the files that are compiled."""
_TYPES = "types of a schema are Tensor, int, float, bool, str, ScalarType, Device, T? and T[]"


def read_extension(request: Extension, tree: Tree) -> Extension:
    """Read the user's files, and separate the user's flags and directories from the toolchain's."""
    if not request.texts:
        _check_sources(request.sources, request.cflags)

    def parsed(words: Iterable[str]) -> Flags:
        return flags.parse_flags(map(tree.virtual, words), tree.here, tree.installed)

    cflags, cuda_cflags = parsed(request.cflags), parsed(request.cuda_cflags)
    named = [f"/{tree.path(path)}" for path in request.includes]
    search = list(dict.fromkeys((*named, *cflags.search, *cuda_cflags.search)))
    if request.build_directory:
        search.append(f"/{tree.path(request.build_directory)}")
    users = tuple(d.lstrip("/") for d in search if not tree.is_installed(d))
    apart = (d.lstrip("/") for d in (*cflags.apart, *cuda_cflags.apart))
    searched = tuple(dict.fromkeys((*users, *apart)))
    first = tuple(path.lstrip("/") for path in (*cflags.first, *cuda_cflags.first))
    units: list[ExtensionUnit] = []
    for path in map(tree.path, request.sources):
        closure = tree.closure(path, searched, first)
        texts = {each: tree.get(each) for each in closure.files}
        unit = ExtensionUnit(path=path, title=tree.title(path), texts=texts, closure=closure)
        units.append(unit)
    ldflags = flags.linker_flags(request.ldflags, request.here)
    linked = {path: tree.identity(path) for path in flags.linked_files(ldflags)}
    has_cuda = any(unit.is_cuda for unit in units)
    return replace(
        request,
        file=request.file or f"{request.name}.so",
        units=tuple(units),
        cflags=cflags.words,
        cuda_cflags=cuda_cflags.words,
        dlink=None if request.dlink is None else parsed(request.dlink).words,
        ldflags=ldflags,
        linked={path: identity for path, identity in linked.items() if identity},
        includes=users,
        installed=tuple(d for d in search if d.lstrip("/") not in users),
        with_cuda=has_cuda if request.with_cuda is None else request.with_cuda,
    )


def content_key(module: Extension) -> str:
    """Digest of all that makes a module, whichever op namespaces this process has."""
    asked = replace(module, sources=(), texts=(), here="", build_directory="")
    return digest.sha256(repr(asked))


def paths(given: Any) -> tuple[str, ...]:
    """Paths as a tuple of strings."""
    listed = [given] if isinstance(given, str | bytes | os.PathLike) else given or ()
    return tuple(map(os.fsdecode, listed))


def refuse_sycl(given: object, wanted: bool | None) -> None:  # noqa: FBT001
    """Refuse what only torch's loader does."""
    if given or wanted:
        raise UsageError("SYCL sources are not compiled here", hint="use torch's own loader")


def _check_sources(sources: Sequence[str], cflags: Iterable[str]) -> None:
    """Refuse files that a compiler would ignore or hand to the linker, unless flags have ``-x``."""
    if not sources:
        raise UsageError("there are no sources", hint="name at least one .cpp or .cu file")
    if any(flag.startswith("-x") for flag in cflags):
        return
    for path in sources:
        if not path.endswith(SUFFIXES) and not os.path.isdir(path):  # noqa: PTH112 - said later
            suffix = posixpath.splitext(path)[1]
            raise UsageError(
                f"{path} is not a source: {suffix or 'a file without a suffix'} is not compiled",
                hint="name .cpp (.cc, .cxx, .c) and .cu files; headers are found by their includes",
            )


def check_module(module: Extension, restore: Callable[[str], str]) -> None:
    """Refuse an invalid name, and an operator that torch cannot import or that differs in C++.

    Args:
        restore: puts the user's paths into a message.
    """
    texts = {path: text for unit in module.units for path, text in unit.texts.items()}
    _check_name(module.name, texts.values())
    wrong = [
        restore(f"{path}:{line}: error: {mistake}")
        for path, text in texts.items()
        for line, schema in op_schema.schema_lines(text)
        if (mistake := machine.schema_mistake(schema))
    ]
    if wrong:
        raise BuildError("\n".join(wrong), hint=_TYPES)
    check_types(module, restore)


def check_types(module: Extension, restore: Callable[[str], str]) -> None:
    """Refuse operators whose C++ functions differ from their schemas, and surely wrong sources.

    No compiler has started yet; the message has the form of a compiler's.
    """
    texts = {path: text for unit in module.units for path, text in unit.texts.items()}
    units = ((unit.path, unit.closure, unit.texts) for unit in module.units)
    if found := dict.fromkeys([*mistakes.of_types(texts), *mistakes.of_units(units)]):
        lines = (restore(f"{each.path}:{each.line}: error: {each.problem}") for each in found)
        raise BuildError("\n".join(lines), hint=mistakes.fixes(found))


def _check_name(name: str, texts: Iterable[str]) -> None:
    """Refuse a name that no file, or no Python module of these sources, can have."""
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise UsageError(
            f"{name!r} cannot be the name of a module",
            hint="write a word, as my_kernel; build_directory says where it is put",
        )
    word = name.isascii() and name.isidentifier()
    if not word and any(EXTENSION_NAME in text for text in texts):
        raise UsageError(
            f"{name!r} is not an identifier of C++, and {EXTENSION_NAME} in the sources stands for "
            "it",
            hint=f"call it {re.sub(r'[^A-Za-z0-9_]|^(?=[0-9])', '_', name)!r}",
        )


# -- files ---------------------------------------------------------------------------------


class Tree:
    """Files of this machine, read on demand: the mapping that ``includes.closure`` takes.

    An action has them at their absolute paths without the leading slash. pip unpacks a source
    distribution into another directory each time; so that its objects are found again, an action
    has the files below a project's directory in ``src/``, wherever that lies.

    Args:
        given: texts of files that are not on the disk.
        here: the directory from which relative paths start.
        installed: directories whose content is part of the toolchain, not the user's.
        base: the project's directory; empty without one.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        here: str = "/",
        installed: tuple[str, ...] = (),
        base: str = "",
    ) -> None:
        self._texts: dict[str, str | None] = dict(given)
        self.working_directory, self.installed, self.base = here, installed, base
        self._stamps: dict[str, Stamp | None] = {}
        self._recent: set[str] = set()

    def __contains__(self, path: object) -> bool:
        return self._text(str(path)) is not None

    def __iter__(self) -> Iterator[str]:
        return (path for path, text in self._texts.items() if text is not None)

    def get(self, path: str, default: str = "") -> str:
        """Text of a file."""
        text = self._text(path)
        return default if text is None else text

    @property
    def here(self) -> str:
        """The directory from which relative paths start, as ``virtual`` gives it."""
        return self.virtual(self.working_directory)

    def virtual(self, word: str) -> str:
        """A word of a command line with the project's directory as ``/src``."""
        if not self.base:
            return word
        return f"{word}/".replace(f"{self.base}/", f"/{_PROJECT}/").removesuffix("/")

    def path(self, given: str) -> str:
        """A user's path as an action has it."""
        return flags.absolute(self.virtual(given), self.here).lstrip("/")

    def real(self, path: str) -> str:
        """Real path of a file that an action sees."""
        top, slash, below = path.partition("/")
        return f"{self.base}{slash}{below}" if self.base and top == _PROJECT else f"/{path}"

    def title(self, path: str) -> str:
        """Name of a source in messages; a source that is not on the disk has no slash."""
        if self.base:
            return path.removeprefix(f"{_PROJECT}/")
        return f"/{path}" if "/" in path else posixpath.splitext(path)[0]

    def restore(self, text: str) -> str:
        """A compiler's output with the user's paths."""
        if self.base:
            above = posixpath.relpath(self.base, self.working_directory)
            return re.sub(rf"(?<![\w/.-]){_PROJECT}/", "" if above == "." else f"{above}/", text)
        paths = sorted((re.escape(path) for path in self if "/" in path), reverse=True)
        return re.sub(rf"(?<![\w/.-])({'|'.join(paths)})", r"/\1", text) if paths else text

    def is_installed(self, path: str) -> bool:
        """Whether an absolute path is part of the toolchain."""
        return flags.is_installed(path, self.installed)

    def closure(self, source: str, directories: tuple[str, ...], first: tuple[str, ...]) -> Closure:
        """Files that a source may read; with an include that names a macro, all headers count.

        Args:
            source: its path in an action, as all others.
            directories: search path.
            first: files that flags include.
        """
        if source not in self:
            raise self._no_source(source)
        known: Mapping[str, str] = self  # type: ignore[assignment]  # what is used of a mapping
        closure = includes.closure(source, known, directories, first=first)
        if not closure.opaque:
            return closure
        for path in self._headers_below((posixpath.dirname(source), *directories)):
            self.get(path)
        return includes.closure(source, known, directories, first=first)

    def watch(self, path: str) -> Stamp | None:
        """Stamp of an absolute path, such as of an object; a change of it will be seen."""
        self._stamps[path] = current = _stamp(path)
        if current and time.time_ns() - current[1] < _TIMESTAMP_NS:
            self._recent.add(path)
        return current

    def identity(self, path: str) -> str:
        """Fingerprint of a file for the linker; empty if there is no file.

        A project's is the content: pip unpacks the project into another directory each time.
        """
        current = self.watch(path)
        if current is None:
            return ""
        return sha256_file(Path(path)) if self.base else " ".join(map(str, current))

    def unchanged(self) -> bool:
        """Whether no file changed since it was read; False if a file is too new to say."""
        return not self._recent and all(_stamp(p) == old for p, old in self._stamps.items())

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> str | None:
        real = self.real(path)
        return None if self.watch(real) is None else _read_text(real)

    def _headers_below(self, directories: Iterable[str]) -> Iterable[str]:
        headers: list[str] = []
        for top in dict.fromkeys(directories):
            for header in _headers_below(self.real(top)):
                headers.append(top + header.removeprefix(self.real(top)))
                if len(headers) > _OPAQUE_LIMIT:
                    return headers
        return headers

    def _no_source(self, source: str) -> UsageError:
        real = self.real(source)
        return UsageError(
            f"there is no source {real}",
            hint="name files; load(directory) without sources builds a kernel project",
        )


def _stamp(path: str) -> Stamp | None:
    """Stamp of a file; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - many files, each time
    except OSError:
        return None
    if not S_ISREG(status.st_mode):
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _read_text(path: str) -> str | None:
    """Text of a file, as compilers take it; None if there is none."""
    try:
        # Compilers take any bytes, in comments above all: what is not UTF-8 becomes surrogates.
        return Path(path).read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _headers_below(top: str) -> Iterator[str]:
    """Paths of the headers below a directory."""
    for directory, _, names in os.walk(top):
        for name in names:
            if posixpath.splitext(name)[1] in _HEADERS:
                yield f"{directory}/{name}"
