# SPDX-License-Identifier: Apache-2.0
"""The user's flags, with paths as an action's directory has them.

An action sees a user's file ``/a/b.h`` as ``a/b.h``. Search paths of the system, of torch and of
the toolkit stay as they are: those directories are part of the toolchain.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernforge.errors import UsageError

_INCLUDE = ("-include", "--pre-include")
_SEARCH = ("-I", "--include-path")
# Search paths that come before or after those of -I.
_SEARCH_APART = ("-isystem", "-iquote", "-idirafter", "--system-include")
_PATH = re.compile(
    f"(?P<name>{'|'.join(_INCLUDE)}|--include-path)(?:=(?P<value>.+))?"
    f"|(?P<joined>-I|{'|'.join(_SEARCH_APART)})=?(?P<rest>.*)"
)
_OBJECT = re.compile(r"\.(?:o|a|so(?:\.[\d.]+)?)$")
# A flag, a file, or a file with flags.
_ARGUMENT = re.compile(r"[-@]|[^\s()]*/|\S+\.(?:o|a|so|ld|map|lib|res)(?:\.[\d.]+)?$")
# Words after which a value cannot stand.
_COMPLETE = re.compile(
    r"[^-].*|\S*=.*|-(?:[DUIlLO]\S+|W\S+|w|v|g\d?|ggdb\d?|f(?!mad$|tz$)\S+|m(?!axrregcount$)\S+)"
)
_WORD = re.compile(r"[A-Za-z][\w+-]*")
_RELOCATABLE = re.compile(
    r"-?-(?:rdc|relocatable-device-code)=true|-?-(?:dc|device-c|dlto|dlink-time-opt|lto)|.*code=\S*lto_.*"
)
_RELOCATABLE_APART = re.compile(r"-?-(?:rdc|relocatable-device-code)")
_LINK_TIME = re.compile(r"-?-(?:dlto|dlink-time-opt|lto)")
_ARCH = re.compile(r"-?-(?:gencode|generate-code|arch|gpu-architecture|code|gpu-code)")
_LIBRARIES = ("lib{}.so", "lib{}.a")
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

    Raises:
        UsageError: a quotation has no end, or a word is neither a flag nor a file nor a flag's
            value.
    """
    listed = [flags] if isinstance(flags, str) else flags or ()
    arguments: list[str] = []
    for flag in map(str, listed):
        try:
            parts = shlex.split(flag)
        except ValueError as error:
            raise UsageError(
                f"{what} has {flag!r}, which cannot be read: {error}",
                hint="quote it as for a shell",
            ) from error
        before = [arguments[-1] if arguments else "", *parts][: len(parts)]
        strays = [
            word
            for word, previous in zip(parts, before, strict=True)
            if not _ARGUMENT.match(word) and (not previous or _COMPLETE.fullmatch(previous))
        ]
        if stray := next(filter(_WORD.fullmatch, strays), ""):
            raise UsageError(
                f"{what} has {flag!r}, in which {stray!r} is neither a flag nor a file",
                hint=f"write -{stray} if it is a flag; a string is divided at its blanks, so quote "
                "a value that has some",
            )
        arguments += [flag] if strays else parts
    return tuple(arguments)


def is_relocatable(cuda_flags: Sequence[str]) -> bool:
    """Whether nvcc is asked for device code that only a device link completes, in any spelling."""
    pairs = zip(cuda_flags, (*cuda_flags[1:], ""), strict=False)
    return any(
        _RELOCATABLE.fullmatch(word) or (_RELOCATABLE_APART.fullmatch(word) and value == "true")
        for word, value in pairs
    )


def at_device_link(cuda_flags: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Flags for nvcc that a compilation has, and those that the device link has.

    Link-time optimization is asked for at the link; objects then hold ``code=lto_...``.
    """
    compiled = tuple(word for word in cuda_flags if not _LINK_TIME.fullmatch(word))
    late = ("-dlto",) if compiled != tuple(cuda_flags) else ()
    linked: list[str] = [*late]
    for at, word in enumerate(compiled):
        name, equals, _ = word.partition("=")
        if _ARCH.fullmatch(name):
            linked += [word] if equals else compiled[at : at + 2]
    if late:
        compiled = ("-rdc=true", *(re.sub(r"(code=\[?)sm_", r"\1lto_", word) for word in compiled))
    return compiled, tuple(linked)


def parse_flags(flags: Iterable[str], here: str, installed: Iterable[str] = ()) -> Flags:
    """Separate search paths and included files from other flags.

    Args:
        flags: as ``words`` gives them.
        here: the directory that relative paths start from.
        installed: directories whose content is part of the toolchain, not the user's.
    """
    rest: list[str] = []
    search: list[str] = []
    apart: list[str] = []
    first: list[str] = []
    todo = list(flags)
    while todo:
        flag = todo.pop(0)
        match = _PATH.fullmatch(flag)
        value = match and (match["value"] or match["rest"] or (todo.pop(0) if todo else ""))
        if not match or not value:
            rest.append(flag)
            continue
        name, path = match["name"] or match["joined"], absolute(value, here)
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
    absolute_flags = []
    todo = list(flags)
    while todo:
        flag = todo.pop(0)
        if flag == "-L" and todo:
            absolute_flags.append(f"-L{absolute(todo.pop(0), here)}")
        elif flag.startswith("-L"):
            absolute_flags.append(f"-L{absolute(flag[2:], here)}")
        elif not flag.startswith(("-", "@")) and (_OBJECT.search(flag) or "/" in flag):
            absolute_flags.append(absolute(flag, here))
        else:
            absolute_flags.append(flag)
    return tuple(absolute_flags)


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
