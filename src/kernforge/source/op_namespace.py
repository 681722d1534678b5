# SPDX-License-Identifier: Apache-2.0
"""Op namespaces in sources, whose names change with every edit of any source.

A source of a project that uses the namespace's macro anywhere must be compiled for each name. A
source that uses it only in the macros of kernforge's ``registration.h`` takes the name from another
object at link time, so that its object file serves every build. See decision 13 in docs/decisions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from kernforge.source import cpp_text

EXTENSION_NAME = "TORCH_EXTENSION_NAME"
LIBRARY = re.compile(
    r"\b(?P<stable>STABLE_)?TORCH_LIBRARY(?P<kind>_IMPL|_FRAGMENT)?(?:_EXPAND)?\s*\(\s*"
    r"(?P<name>\w+)\s*,"
)
"""The start of a block that registers operators."""
SOURCE = "namespace.cpp"
AT_LINK = "-DKERNFORGE_NAMESPACE_AT_LINK"
_MACROS = (EXTENSION_NAME, "TVM_FFI_EXTENSION_NAME")
_REGISTERS = re.compile(r"\bREGISTER_EXTENSION\s*\(\s*TORCH_EXTENSION_NAME\s*\)")
_LIBRARY = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?_EXPAND\s*\(\s*TORCH_EXTENSION_NAME\s*,"
)
_MADE = re.compile(r"#\s*define\b(?:.*\\\n)*.*TORCH_LIBRARY")
# The macros with another name, or with a definition that is not kernforge's.
_OTHERWISE = re.compile(
    r"\b(?:(?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?_EXPAND|REGISTER_EXTENSION)\b"
)
_STABLE = re.compile(r"\bSTABLE_TORCH_LIBRARY")
_STABLE_SINCE = (2, 10)
_TEXT = """// The op namespace of one build, and Python's way into it.
extern "C" {{
struct _object;
extern const char kernforge_namespace[] __attribute__((visibility("hidden")));
const char kernforge_namespace[] = "{name}";
__attribute__((visibility("hidden"))) struct _object* kernforge_module();
__attribute__((visibility("default"))) struct _object* PyInit_{name}() {{
  return kernforge_module();
}}
}}
"""


NamespaceUse: TypeAlias = Literal["none", "compiled", "module", "linked", "joined"]
"""How a unit gets the op namespace.

It is not read; the unit is compiled with it; so, and it may hold Python's way into it; or the unit
takes it at link time, with Python's way into it or, as one that only adds operators, without.
"""
_HANDED_ON = r"#\s*include\b|[(,&]\s*%s\s*[,)]"
_REGISTERED = re.compile(r"[.>]\s*(?:def|impl)\s*\(\s*(?:R\"\w*\(|\")(?:\w+::)?(\w+)")


class Block(NamedTuple):
    """A block that registers operators.

    Attributes:
        macro: the macro and the namespace, as they are written.
        namespace: the one that a source names itself; empty for that of the build.
        defines: whether it defines its operators, and does not implement them.
        names: of its operators, as far as they are written there.
        whole: whether all its operators are: it includes no file and does not hand its library on.
    """

    line: int
    macro: str
    namespace: str
    defines: bool
    names: frozenset[str]
    whole: bool


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a source; none where it defines macros that make them."""
    code = cpp_text.code(text) if "TORCH_LIBRARY" in text else ""
    if _MADE.search(code):
        return
    last = 0
    for match in LIBRARY.finditer(code):
        if match.start() < last:
            continue
        name, end = match["name"], cpp_text.closing(code, code.index("(", match.start()))
        begin = code.find("{", end)
        last = cpp_text.closing(code, begin) if min(end, begin) >= 0 else -1
        if last < 0:
            return
        library = [name, *re.findall(r"\w+", code[match.end() : end])][-1]
        yield Block(
            line=cpp_text.line_of(code, match.start()),
            macro=" ".join(text[match.start() : end + 1].split()),
            namespace="" if name == EXTENSION_NAME else name,
            defines=match["kind"] != "_IMPL",
            names=frozenset(_REGISTERED.findall(text[begin:last])),
            whole=not re.search(_HANDED_ON % library, code[begin:last]),
        )


def use(texts: Iterable[str], *, bundled: bool, torch: tuple[int, int] | None) -> NamespaceUse:
    """How a unit uses the op namespace.

    Args:
        texts: texts of the project's files that the unit may read, without bundled headers.
        bundled: whether the unit reads kernforge's ``registration.h``.
        torch: version of the torch whose headers the unit reads; None if it reads none.
    """
    sources = list(texts)
    if not any(name in text for text in sources for name in _MACROS):
        return "none"
    registers = sum(len(_REGISTERS.findall(text)) for text in sources)
    old = torch and torch < _STABLE_SINCE and any(_STABLE.search(text) for text in sources)
    if bundled and registers <= 1 and torch and not old:
        rest = [_LIBRARY.sub("", _REGISTERS.sub("", text)) for text in sources]
        if not any(_OTHERWISE.search(text) or any(m in text for m in _MACROS) for text in rest):
            return "linked" if registers else "joined"
    return "module" if registers else "compiled"


def together(uses: Sequence[NamespaceUse]) -> list[NamespaceUse]:
    """How the units of one build use the namespace: a unit that may join is linked or compiled.

    The object that holds the name at link time has Python's way into it. So if a unit is compiled
    with its own, as where the preprocessor chooses one of two bindings, all are compiled with it.
    """
    linked = "linked" in uses and "module" not in uses
    at_link: NamespaceUse = "linked" if linked else "compiled"
    return [at_link if one in {"linked", "joined"} else one for one in uses]


def source(name: str) -> str:
    """Source of the object that holds the namespace."""
    return _TEXT.format(name=name)
