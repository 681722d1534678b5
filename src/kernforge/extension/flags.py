# SPDX-License-Identifier: Apache-2.0
"""The user's flags, with paths as an action's directory has them.

An action sees a user's file ``/a/b.h`` as ``a/b.h``. Search paths of the system, of torch and of
the toolkit stay as they are: those directories are part of the toolchain.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kernforge.artifact.gpu import Arch
from kernforge.errors import UsageError

_INCLUDE = ("-include", "--pre-include")
_SEARCH = ("-I", "--include-path")
# Search paths that come before or after those of -I.
_SEARCH_APART = ("-isystem", "-iquote", "-idirafter", "--system-include")
_PATH_OPTION = re.compile("|".join((*_INCLUDE, *_SEARCH, *_SEARCH_APART)))
_PATH = re.compile(
    f"(?P<name>{'|'.join(_INCLUDE)}|--include-path)=(?P<value>.+)"
    f"|(?P<joined>-I|{'|'.join(_SEARCH_APART)})=?(?P<rest>.+)"
)
_OBJECT = re.compile(r"\.(?:o|a|so(?:\.[\d.]+)?)$")
_RDC = re.compile(r"-?-(?:rdc|relocatable-device-code)")
_RELOCATABLE = re.compile(rf"{_RDC.pattern}=true|-?-(?:dc|device-c)")
_ARCH = re.compile(r"-?-(?:gencode|generate-code|arch|gpu-architecture|code|gpu-code)")
_SEARCHED = re.compile("-L")
_DEBUG = re.compile(
    r"(?:-Xcompiler[=,])?(?:-g[0-3]?|-ggdb\d?)|--debug|-G|-?-(?:device-debug|lineinfo|generate-line-info)"
)
_LIBRARIES = ("lib{}.so", "lib{}.a")
# What the scheduler decides, or what makes an object differ between directories.
_SCHEDULED = re.compile(r"--threads|-t|--split-compile|--keep-dir")
_OURS = re.compile(rf"(?:{_SCHEDULED.pattern})=.*|-t\d+|-?-keep|--objdir-as-tempdir|-objtemp")
_STANDARD = re.compile(r"(-{1,2}std=(?:c|gnu)\+\+)(\d\w)")
_DRAFTS = {"0x": 11, "1y": 14, "1z": 17, "2a": 20, "2b": 23, "2c": 26}
_GENCODE = re.compile(r"arch=compute_(\d+)([af]?),code=(.*)")
SYSTEM = (
    "/usr/local/include",
    *(f"/usr/include/{cpu}-linux-gnu" for cpu in ("x86_64", "aarch64")),
    "/usr/include",
)
"""Directories in which compilers look for headers that no search path has, in their order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags of a compiler.

    Attributes:
        rest: all but the following, in order.
        search: search path of ``-I``; absolute directories.
        apart: the user's directories in search paths of ``rest``; absolute.
        first: absolute paths of files that are included before the first line.
    """

    rest: tuple[str, ...]
    search: tuple[str, ...]
    apart: tuple[str, ...]
    first: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """All but ``search``, for an action that sees the user's files."""
        included = (word for path in self.first for word in ("-include", path.lstrip("/")))
        return (*included, *self.rest)


def words(flags: str | Sequence[str] | None, what: str = "flags") -> tuple[str, ...]:
    """The arguments in flags.

    An element of a list is one argument, or several flags in one string, as torch takes it, divided
    as a shell does: ``"-O3 -g"`` is two arguments and ``"-DSCALE=(1 + 1)"`` is one.

    Args:
        what: the argument's name, for the errors.
    """
    arguments: list[str] = []
    for flag in map(str, [flags] if isinstance(flags, str) else flags or ()):
        try:
            parts = shlex.split(flag)
        except ValueError as error:
            raise UsageError(
                f"{what} has {flag!r}, which cannot be read: {error}",
                hint="quote it as for a shell",
            ) from error
        divides_brackets = any(part.count("(") != part.count(")") for part in parts)
        arguments += [flag] if divides_brackets else parts
    return tuple(arguments)


def _joined(words: Iterable[str], option: re.Pattern[str], by: str = "=") -> list[str]:
    """Words in which the value of an option stands in the same word."""
    joined, todo = [], iter(words)
    for word in todo:
        value = next(todo, None) if option.fullmatch(word) else None
        joined.append(word if value is None else f"{word}{by}{value}")
    return joined


def is_relocatable(cuda_flags: Sequence[str]) -> bool:
    """Whether nvcc is asked for device code that only a device link completes, in any spelling."""
    return any(map(_RELOCATABLE.fullmatch, _joined(cuda_flags, _RDC)))


def architecture_flags(cuda_flags: Iterable[str]) -> tuple[str, ...]:
    """Flags that say what to compile for, which a device link gets too."""
    joined = _joined(cuda_flags, _ARCH)
    return tuple(word for word in joined if _ARCH.fullmatch(word.partition("=")[0]))


def raised(words: Iterable[str], standard: int) -> tuple[str, ...]:
    """Flags with a C++ standard of at least this number.

    >>> raised(["-O3", "-std=c++17"], 20)
    ('-O3', '-std=c++20')
    """

    def least(word: str) -> str:
        match = _STANDARD.fullmatch(word)
        older = match and int(_DRAFTS.get(match[2], match[2])) < standard
        return f"{match[1]}{standard}" if match and older else word

    return tuple(map(least, words))


def debugs(words: Iterable[str]) -> bool:
    """Whether flags ask for names and lines of sources in what is compiled."""
    return any(map(_DEBUG.fullmatch, words))


def without_scheduling(words: Iterable[str]) -> tuple[str, ...]:
    """Flags of nvcc without threads and intermediate files, which the scheduler sets."""
    return tuple(word for word in _joined(words, _SCHEDULED) if not _OURS.fullmatch(word))


def architectures(words: Iterable[str]) -> Iterator[str]:
    """Architectures that flags of nvcc name by ``-gencode``, as ``9.0a``."""
    for match in filter(None, map(_GENCODE.search, words)):
        yield f"{match[1][:-1]}.{match[1][-1]}{match[2]}"


def narrowed(words: Sequence[str], archs: Collection[Arch]) -> tuple[str, ...]:
    """Flags of nvcc without those for GPUs that were not asked for.

    >>> narrowed(["-gencode", "arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"],
    ...          [Arch(9, 0)])
    ('-gencode=arch=compute_90,code=sm_90',)

    Args:
        archs: the architectures that were asked for; if the flags name none of them, all stay.
    """
    digits = {f"{arch.major}{arch.minor}" for arch in archs}
    joined = _joined(words, _ARCH)
    named = {word: match[1] for word in joined if (match := _GENCODE.search(word))}
    if digits.isdisjoint(named.values()):
        return tuple(words)
    return tuple(word for word in joined if word not in named or named[word] in digits)


def parse_flags(flags: Iterable[str], here: str, installed: Iterable[str] = ()) -> Flags:
    """Separate search paths and included files from other flags.

    Args:
        here: the directory that relative paths start from.
        installed: directories whose content is part of the toolchain, not the user's.
    """
    rest: list[str] = []
    search: list[str] = []
    apart: list[str] = []
    first: list[str] = []
    for flag in _joined(flags, _PATH_OPTION):
        if not (match := _PATH.fullmatch(flag)):
            rest.append(flag)
            continue
        name = match["name"] or match["joined"]
        path = absolute(match["value"] or match["rest"], here)
        if name in _INCLUDE:
            first.append(path)
        elif name in _SEARCH:
            search.append(path)
        else:
            users = not is_installed(path, installed)
            apart += [path] if users else []
            rest += [name, path.lstrip("/") if users else path]
    return Flags(rest=tuple(rest), search=tuple(search), apart=tuple(apart), first=tuple(first))


def linker_flags(flags: Iterable[str], here: str) -> tuple[str, ...]:
    """A linker's flags with absolute search paths and absolute names of files."""

    def in_place(flag: str) -> str:
        if flag.startswith("-L"):
            return f"-L{absolute(flag[2:], here)}"
        is_file = _OBJECT.search(flag) or "/" in flag
        return absolute(flag, here) if is_file and not flag.startswith(("-", "@")) else flag

    return tuple(map(in_place, _joined(flags, _SEARCHED, by="")))


def linked_files(flags: Iterable[str]) -> tuple[str, ...]:
    """Files that a linker may read because of flags that ``linker_flags`` gave.

    Objects, libraries, and libraries by name in the search paths of the flags themselves. Not all
    of them need exist.
    """
    words = tuple(flags)
    folders = [word.removeprefix("-L") for word in words if word.startswith("-L")]
    files: list[str] = []
    for word in words:
        if word.startswith("/"):
            files.append(word)
        elif word.startswith("-Wl,"):  # as -Wl,--version-script=/a/b.map and -Wl,-T,/a/b.ld
            parts = re.split("[,=]", word)
            files += [part for part in parts if part.startswith("/")]
        elif word.startswith("-l:"):
            files += [f"{folder}/{word[3:]}" for folder in folders]
        elif word.startswith("-l"):
            names = [name.format(word[2:]) for name in _LIBRARIES]
            files += [f"{folder}/{name}" for folder in folders for name in names]
    return tuple(dict.fromkeys(files))


def absolute(path: str, here: str) -> str:
    """A path from the root, without ``..``."""
    return posixpath.normpath(posixpath.join(here, path))


def is_installed(path: str, toolchain: Iterable[str]) -> bool:
    """Whether a directory is searched anyway or lies in the toolchain, and is not the user's."""
    return path in SYSTEM or is_below(path, toolchain)


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these directories or lies in one of them."""
    return any(f"{path}/".startswith(f"{top.rstrip('/')}/") for top in tops)
