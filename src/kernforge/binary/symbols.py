# SPDX-License-Identifier: Apache-2.0
"""Demangled C++ names, and functions that the linker sees as two.

The demangler is that of the C++ runtime (``__cxa_demangle`` of the Itanium C++ ABI), which every
process with torch has loaded.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kernforge.binary.elf import Elf

_RUNTIME = "libstdc++.so.6"


def demangled(symbol: str) -> str:
    """A symbol's name in C++.

    Returns:
        The name, such as ``kernel(float*)``; the symbol itself if it is not a mangled name, or if
        this machine has no C++ runtime.
    """
    name_of = _demangler()
    if name_of is None or not symbol.startswith("_Z"):
        return symbol
    return name_of(symbol) or symbol


def bare_name(function: str) -> str:
    """The last part of a function's name, as C++ writes the function."""
    return function.partition("(")[0].rpartition("::")[2].rpartition(" ")[2].partition("<")[0]


def one_sided(library: Elf, texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Functions of a module that have ``extern "C"`` on one side only.

    C++ writes the types of the arguments into a function's name for the linker, and ``extern "C"``
    does not: one that a file defines with it and another declares without is two functions. The
    module links, because it may take symbols from the process, and cannot be loaded.

    Args:
        texts: its sources and headers, by the path that the user knows.

    Returns:
        For each what is wrong, and what to do.
    """
    exported = {symbol.name for symbol in library.exported}
    for symbol in (s.name for s in library.undefined if not s.version):
        name = bare_name(demangled(symbol))
        if symbol.startswith("_Z"):
            defined = name in exported
        else:
            part = f"{len(name)}{name}"
            likely = (s for s in exported if s.startswith("_Z") and part in s)
            defined = any(bare_name(demangled(each)) == name for each in likely)
        if not defined:
            continue
        word = re.compile(rf"\b{re.escape(name)}\s*\(")
        places = [path for path, text in sorted(texts.items()) if word.search(text)]
        problem = (
            f'{name} has extern "C" on one side only ({", ".join(places)}): for the linker these '
            "are two functions, and the one that is called is not defined"
        )
        remedy = (
            f'write extern "C" before {name} where it is declared and where it is defined, or in '
            "neither place; a header that both files include keeps them equal"
        )
        yield problem, remedy


@functools.cache
def _demangler() -> Callable[[str], str] | None:
    try:
        runtime: Any = ctypes.CDLL(_RUNTIME)
    except OSError:
        return None
    demangle, free = runtime["__cxa_demangle"], runtime["free"]
    demangle.restype = ctypes.c_void_p
    free.argtypes = (ctypes.c_void_p,)

    def name_of(symbol: str) -> str:
        text = demangle(symbol.encode(), None, None, None)
        if not text:
            return ""
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            free(text)

    return name_of
