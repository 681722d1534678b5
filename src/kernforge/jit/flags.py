# SPDX-License-Identifier: Apache-2.0
"""Flags that a user gives in words of this machine, in words of an action's directory.

An action sees a user's file ``/a/b.h`` as ``a/b.h``. Search paths of the system, of torch and of the
toolkit stay as they are: what lies there is part of the toolchain.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SEARCH = ("-I", "--include-path")
_INCLUDE = ("-include", "--pre-include")
# Search paths that come before or behind those of -I.
_SEARCH_APART = ("-isystem", "-iquote", "-idirafter", "--system-include")
_OBJECT = re.compile(r"\.(?:o|a|so(?:\.[\d.]+)?)$")
_LIBRARIES = ("lib{}.so", "lib{}.a")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags of a compiler, apart from where it looks.

    Attributes:
        rest: all others, in order.
        search: absolute directories.
        apart: directories of the user's in ``rest``, absolute.
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


def words(flags: str | Sequence[str] | None) -> tuple[str, ...]:
    """Each argument of flags that may hold several, as a shell would see them.

    Raises:
        UsageError: a quotation has no end.
    """
    listed = [flags] if isinstance(flags, str) else flags or ()
    found: list[str] = []
    for flag in map(str, listed):
        try:
            found += shlex.split(flag)
        except ValueError as error:
            raise UsageError(
                f"the flag {flag!r} cannot be read: {error}", hint="quote it as for a shell"
            ) from error
    return tuple(found)


def parted(flags: Iterable[str], here: str, installed: Iterable[str] = ()) -> Flags:
    """Tell search paths and included files from other flags.

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
        name = next((n for n in (*_SEARCH, *_INCLUDE) if flag == n), "")
        if name and todo:
            (search if name in _SEARCH else first).append(absolute(todo.pop(0), here))
        elif flag.startswith("-I") and flag != "-I":
            search.append(absolute(flag.removeprefix("-I"), here))
        elif name := next((n for n in _SEARCH_APART if flag.startswith(n)), ""):
            value = flag.removeprefix(name).removeprefix("=") or (todo.pop(0) if todo else "")
            directory = absolute(value, here)
            mine = not is_below(directory, installed)
            apart += [directory] if mine else []
            rest += [name, directory.lstrip("/") if mine else directory]
        else:
            rest.append(flag)
    return Flags(rest=tuple(rest), search=tuple(search), apart=tuple(apart), first=tuple(first))


def linker(flags: Iterable[str], here: str) -> tuple[str, ...]:
    """A linker's flags with absolute search paths and absolute names of files."""
    found = []
    todo = list(flags)
    while todo:
        flag = todo.pop(0)
        if flag == "-L" and todo:
            found.append(f"-L{absolute(todo.pop(0), here)}")
        elif flag.startswith("-L"):
            found.append(f"-L{absolute(flag[2:], here)}")
        elif not flag.startswith(("-", "@")) and (_OBJECT.search(flag) or "/" in flag):
            found.append(absolute(flag, here))
        else:
            found.append(flag)
    return tuple(found)


def linked(flags: Iterable[str]) -> tuple[str, ...]:
    """Files that a linker may read by flags that ``linker`` gave; not all of them need be there.

    Objects, libraries, and libraries by name below the search paths of the flags themselves.
    """
    words = tuple(flags)
    folders = [word.removeprefix("-L") for word in words if word.startswith("-L")]
    found: list[str] = []
    for word in words:
        if word.startswith("/"):
            found.append(word)
        elif word.startswith("-Wl,"):  # as -Wl,--version-script=/a/b.map and -Wl,-T,/a/b.ld
            parts = re.split("[,=]", word)
            found += [part for part in parts if part.startswith("/")]
        elif word.startswith("-l:"):
            found += [f"{folder}/{word[3:]}" for folder in folders]
        elif word.startswith("-l"):
            names = [name.format(word[2:]) for name in _LIBRARIES]
            found += [f"{folder}/{name}" for folder in folders for name in names]
    return tuple(dict.fromkeys(found))


def absolute(path: str, here: str) -> str:
    """A path from the root, without ``..``."""
    return posixpath.normpath(posixpath.join(here, path))


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these directories or lies in one."""
    return any(f"{path}/".startswith(f"{top.rstrip('/')}/") for top in tops)
