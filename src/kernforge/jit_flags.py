# SPDX-License-Identifier: Apache-2.0
"""Flags that a user gives in words of this machine, in words of an action's directory.

An action sees a user's file ``/a/b.h`` as ``a/b.h``. Search paths of the system, of torch and of the
toolkit stay as they are: what lies there is part of the toolchain.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SEARCH = ("-I", "--include-path")
_INCLUDE = ("-include", "--pre-include")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags of a compiler, apart from where it looks.

    Attributes:
        rest: all others, in order.
        search: absolute directories.
        first: absolute paths of files that are included before the first line.
    """

    rest: tuple[str, ...]
    search: tuple[str, ...]
    first: tuple[str, ...]


def words(flags: str | Sequence[str] | None) -> tuple[str, ...]:
    """Each argument of flags that may hold several, as a shell would see them."""
    listed = [flags] if isinstance(flags, str) else flags or ()
    return tuple(word for flag in listed for word in shlex.split(str(flag)))


def parted(flags: Iterable[str], here: str) -> Flags:
    """Tell search paths and included files from other flags.

    Args:
        flags: as ``words`` gives them.
        here: the directory that relative paths start from.
    """
    rest: list[str] = []
    search: list[str] = []
    first: list[str] = []
    todo = list(flags)
    while todo:
        flag = todo.pop(0)
        name = next((n for n in (*_SEARCH, *_INCLUDE) if flag == n), "")
        if name and todo:
            (search if name in _SEARCH else first).append(absolute(todo.pop(0), here))
        elif flag.startswith("-I") and flag != "-I":
            search.append(absolute(flag.removeprefix("-I"), here))
        else:
            rest.append(flag)
    return Flags(rest=tuple(rest), search=tuple(search), first=tuple(first))


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
        elif not flag.startswith("-") and flag.endswith((".o", ".a", ".so")):
            found.append(absolute(flag, here))
        else:
            found.append(flag)
    return tuple(found)


def absolute(path: str, here: str) -> str:
    """A path from the root, without ``..``."""
    return posixpath.normpath(posixpath.join(here, path))


def is_below(path: str, tops: Iterable[str]) -> bool:
    """Whether a path is one of these directories or lies in one."""
    return any(f"{path}/".startswith(f"{top.rstrip('/')}/") for top in tops)
