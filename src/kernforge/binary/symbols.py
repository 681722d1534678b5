# SPDX-License-Identifier: Apache-2.0
"""Demangled C++ names.

The demangler is that of the C++ runtime (``__cxa_demangle`` of the Itanium C++ ABI), which every
process with torch has loaded.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

_RUNTIME = "libstdc++.so.6"


def demangled(symbol: str) -> str:
    """A symbol's name in C++.

    Args:
        symbol: name of the linker, such as ``_Z6kernelPf``.

    Returns:
        The name, such as ``kernel(float*)``; the symbol itself if it is not a mangled name, or if this
        machine has no C++ runtime.
    """
    name_of = _demangler()
    if name_of is None or not symbol.startswith("_Z"):
        return symbol
    return name_of(symbol) or symbol


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
