# SPDX-License-Identifier: Apache-2.0
"""Functions that a module calls and nothing defines, which the linker does not refuse.

A module takes symbols from the process that loads it, torch's among them, so that a missing
launcher shows only at its import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernforge.binary.elf import Elf
from kernforge.binary.symbols import bare_name, demangled, one_sided
from kernforge.errors import BuildError
from kernforge.source import cpp_text

_UNDEFINED = re.compile(r"undefined symbol: (\w+)")
# Names that torch, its headers and the C++ library have, in whichever instance.
_OTHERS = re.compile(
    r"(?:(?:vtable|typeinfo|typeinfo name|guard variable|VTT|construction vtable) for )?"
    r"(?:\w[\w<>:,*& ]* )?(?:at|c10|torch|caffe2|pybind11|std|__gnu_cxx|__cxxabiv1|cutlass|cute)::"
    r"|operator (?:new|delete)"
)


def undefined_error(
    name: str, library: Elf, texts: Mapping[str, str], where: str, *, missing: str = ""
) -> BuildError | None:
    """What is wrong with a module in which a function of its own sources is undefined.

    Args:
        texts: its sources and headers, by the path that the user knows.
        where: what holds the sources, as ``the list of sources``, for the hint.
        missing: the symbol that the dynamic loader misses; empty if it was not asked.

    Returns:
        None if all that it lacks is other libraries' to provide.
    """
    wanted = [s.name for s in library.undefined if not s.version and not s.weak]
    written = {symbol: demangled(symbol) for symbol in ([missing] if missing else wanted)}
    for message, hint in one_sided(library, texts):
        return BuildError(f"{name} cannot be imported: {message}", hint=hint)
    for symbol, text in written.items():
        # A name of C may be any library's.
        if not (missing or symbol.startswith("_Z")) or _OTHERS.match(text):
            continue
        if place := _named(text, texts):
            return BuildError(
                f"{name} cannot be imported: {text} is named in {place}, and no source defines it",
                hint="define it (namespace and arguments are part of its name), or add the source "
                f"that does to {where}",
            )
    return None


def missing_symbol(message: str) -> str:
    """The symbol that a dynamic loader's message names as undefined; empty if it names none."""
    match = _UNDEFINED.search(message)
    return match[1] if match else ""


def _named(function: str, texts: Mapping[str, str]) -> str:
    """Where a function is first named, as ``file:line``; empty if nowhere."""
    word = re.compile(rf"\b{re.escape(bare_name(function))}\s*[(<]")
    for path, text in texts.items():
        code = cpp_text.code(text)
        if match := word.search(code):
            return f"{path}:{cpp_text.line_of(code, match.start())}"
    return ""
