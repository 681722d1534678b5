# SPDX-License-Identifier: Apache-2.0
"""Tells which function of a project a built module misses, and where it should be.

A launcher that a binding calls and no source defines is no error of the linker's: a module takes
symbols from the process, torch's among them. The dynamic loader then names it, as the linker spells it.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from kernforge.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_SYMBOL = re.compile(r"undefined symbol: (\w+)")
_SOURCES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh")
READ = (*_SOURCES, *_HEADERS)
"""How files are called that ``error`` looks into."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_SHOWN = 5


def symbol(words: str) -> str:
    """The symbol that a dynamic loader's words name as missing; empty where they name none."""
    found = _SYMBOL.search(words)
    return found[1] if found else ""


def error(
    what: str, function: str, texts: Mapping[str, str], kernels: Collection[str]
) -> BuildError | None:
    """What is wrong with a project of which a function is missing; None if it never names it.

    Args:
        what: what cannot be imported.
        function: the function, as C++ writes it.
        texts: the project's sources and headers, by path.
        kernels: paths of those that are compiled as kernels for this backend.
    """
    bare = function.partition("(")[0].rpartition("::")[2].rpartition(" ")[2].partition("<")[0]
    word = re.compile(rf"\b{re.escape(bare)}\b")
    named = [path for path, text in texts.items() if word.search(_INCLUDE.sub("", text))]
    if not named:
        return None
    declared = [path for path in named if path.endswith(_HEADERS)]
    compiled = [path for path in kernels if path.endswith(_SOURCES)]
    should = [path for path in compiled if _includes(texts.get(path, ""), declared)]
    place = " or ".join(sorted(should or compiled)) or "a source"
    return BuildError(
        f"{what} cannot be imported: {function} is named in {_some(named)}, and no source defines it",
        hint=f"define it in {place} (namespace and arguments are part of its name), or name the "
        "source that does in build.toml's src, for this backend too",
    )


def _includes(text: str, headers: Collection[str]) -> bool:
    wanted = {posixpath.basename(path) for path in headers}
    return any(posixpath.basename(name) in wanted for name in _INCLUDE.findall(text))


def _some(paths: Collection[str]) -> str:
    shown = sorted(paths)[:_SHOWN]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
