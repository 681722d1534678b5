# SPDX-License-Identifier: Apache-2.0
"""Op namespaces and modules that the sources of an extension name.

A process can register a namespace once, so that each further build of the JIT needs another name.
That comes from an object of its own at link time: a new name does not compile a binding again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources

from kernforge.source.op_namespace import LIBRARY

NAMES_HEADER = "kernforge_names.h"
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)\s*,|\bPyInit_(\w+)\s*\(")
_DECLARATION = 'extern "C" __attribute__((visibility("hidden"))) const char {symbol}[];'


def namespaces(texts: Iterable[str]) -> frozenset[str]:
    """Names of the op namespaces that sources define; an extended one does not count."""
    matches = (match for text in texts for match in LIBRARY.finditer(text))
    return frozenset(match["name"] for match in matches if not match["kind"])


def module_names(texts: Iterable[str]) -> frozenset[str]:
    """Names of the Python modules that sources define, as written in the sources."""
    return frozenset(a or b for text in texts for a, b in _MODULE.findall(text))


def register(text: str, defined: frozenset[str]) -> str:
    """Take the names of these namespaces from ``NAMES_HEADER``; line numbers do not change."""

    def replacement(match: re.Match[str]) -> str:
        if match["name"] not in defined:
            return match[0]
        kind = f"{match['stable'] or ''}LIBRARY{match['kind'] or ''}"
        return f"KERNFORGE_{kind}({_symbol(match['name'])},"

    return LIBRARY.sub(replacement, text)


def names_header(defined: frozenset[str]) -> str:
    """Text of the header that the output of ``register`` includes."""
    lines = (_DECLARATION.format(symbol=_symbol(name)) for name in sorted(defined))
    macros = resources.files("kernforge") / "data" / "op_namespaces.h"
    return "\n".join(("#pragma once", *lines, macros.read_text(encoding="utf-8")))


def names_source(names: Mapping[str, str]) -> str:
    """Source of the object that holds the names of this build, by the names in the sources."""
    lines = [
        f'{_DECLARATION.format(symbol=_symbol(name))}\nconst char {_symbol(name)}[] = "{actual}";'
        for name, actual in sorted(names.items())
    ]
    return "\n".join([*lines, ""])


def _symbol(name: str) -> str:
    """The symbol that holds a namespace's name."""
    return f"kernforge_namespace_of_{name}"
