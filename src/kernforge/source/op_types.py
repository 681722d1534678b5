# SPDX-License-Identifier: Apache-2.0
"""Do an operator's schema and its C++ function agree in number and types?

Torch's stable ABI passes the bits of a value on: ``int`` in the schema and ``double`` in C++ give a
wrong number, and nothing fails. Torch's full C++ API compares both at the import, which a machine
without the device cannot do. The pairs of types are those of torch's note on the stable ABI.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernforge.source import cpp_text
from kernforge.source.op_schema import ARGUMENT, SCHEMA

_BINDS = re.compile(r"[.>]\s*(?P<what>def|impl)\s*\(")
_FUNCTION = re.compile(r"(?:(?:TORCH_BOX|TORCH_FN)\s*\()?[(&\s]*(?:\w+::)*(\w+)(?:<.*>)?[)\s]*")
_BODY = re.compile(r"\s*(?:noexcept\s*)?(?:->\s*([^{};]{1,200}))?\{")
_SPECIFIERS = re.compile(
    r'\[\[.*?\]\]|^[ \t]*#.*$|\b(?:static|inline|constexpr|extern\s+"C"|__host__)\s', re.MULTILINE
)
_QUALIFIER = re.compile(r"(?:\w+\s*::\s*)+$")
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=([^;{}]{1,200});|\btypedef\s([^;{}]{1,200}?)\s(\w+)\s*;")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_CLASS = re.compile(r"\b(?:struct|class)\s+\w[^;{}()]{0,200}\{")
_GENERIC = re.compile(r"(?:\w+::)*(\w+)\s*<(.*)>")
_INTEGERS = {"int", "int32", "ScalarType", "Layout", "MemoryFormat"}
_KNOWN = _INTEGERS | {"Tensor", "float", "bool", "str", "Device"}
# C++ types by what a schema calls them; float32 and int32 are no types of a schema.
_CPP = {
    "int": "int64_t, uint64_t, size_t, long, long long, SymInt",
    "int32": "int, int32_t, uint32_t, unsigned, unsigned int, short, int16_t, int8_t",
    "float": "double",
    "float32": "float",
    "str": "string, string_view",
    "int[]": "IntArrayRef, IntHeaderOnlyArrayRef, SymIntArrayRef",
    "int[]?": "OptionalIntArrayRef",
    "Tensor[]": "TensorList",
    **{name: name for name in ("Tensor", "bool", "Device", "ScalarType", "Layout", "MemoryFormat")},
}
_OF_CPP = {cpp: name for name, listed in _CPP.items() for cpp in listed.split(", ")}
_WRAPPERS = {
    **dict.fromkeys(("vector", "array", "List", "ArrayRef", "HeaderOnlyArrayRef"), "[]"),
    "optional": "?",
    "OptionalArrayRef": "[]?",
}


class _Function(NamedTuple):
    """A definition.

    Attributes:
        takes: its parameters, as they are written but for the file's own names of types.
    """

    path: str
    line: int
    takes: list[str]
    returns: str


def disagreements(sources: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
    """Functions that cannot implement their operators: path, line and the difference.

    An unknown type, such as an alias, agrees with every other. Where a function or an operator is
    written several times, one pair that agrees is enough.

    Args:
        sources: text of the sources, by path.
    """
    codes = {path: cpp_text.code(text) for path, text in sources.items() if _BINDS.search(text)}
    schemas: dict[str, list[tuple[str, re.Match[str]]]] = {}
    bound: dict[tuple[str, str, str], None] = {}
    for path, code in codes.items():
        end = 0
        for match in _BINDS.finditer(code):
            if match.start() < end:
                continue
            end = cpp_text.closing(code, match.end() - 1)
            if end < 0:
                break
            first, *rest = cpp_text.split(sources[path][match.end() : end])
            _, text = cpp_text.literal(first) or (0, "")
            schema = SCHEMA.fullmatch(" ".join(text.split()))
            operator = schema["name"] if schema else text.rpartition("::")[2]
            if schema:
                place = f"{path}:{cpp_text.line_of(code, match.start())}"
                schemas.setdefault(operator, []).append((place, schema))
            named = _FUNCTION.fullmatch(rest[-1]) if rest else None
            if named and (schema or match["what"] == "impl"):
                bound[path, operator, named[1]] = None
    definitions = _definitions(
        sources, {name for _, operator, name in bound if operator in schemas}
    )
    for path, operator, name in bound:
        known = definitions.get(name, [])
        answers = [
            (function, place, _difference(schema, function))
            for function in [each for each in known if each.path == path] or known
            for place, schema in schemas.get(operator, ())
        ]
        if answers and all(difference for _, _, difference in answers):
            function, place, difference = answers[0]
            problem = f"the schema of {operator} ({place}) says {difference} {name}"
            yield function.path, function.line, problem


def _definitions(sources: Mapping[str, str], names: set[str]) -> dict[str, list[_Function]]:
    """The definitions of functions with these names, in any namespace, but not of members."""
    found: dict[str, list[_Function]] = {}
    for path, text in sources.items():
        if not any(name in text for name in names):
            continue
        code = cpp_text.code(text)
        aliases, classes, end = _aliases(code), _classes(code), 0
        for match in _CALLED.finditer(code):
            if match[1] not in names or match.start() < end:
                continue
            end = cpp_text.closing(code, match.end() - 1)
            if end < 0:
                break
            body = _BODY.match(code, end + 1)
            if not body or any(a < match.start() < b for a, b in classes):
                continue
            begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
            before = _QUALIFIER.sub("", _SPECIFIERS.sub("", code[begin : match.start()])).strip()
            if not before or before[-1] in ":,(=":  # a call, or a constructor's
                continue
            inside = _plain(code[match.end() : end], aliases)
            takes = [each.partition("=")[0].strip() for each in cpp_text.split(inside)]
            # Torch's full API passes the dispatch keys to a function that takes them first.
            takes = [t for t in takes if t not in {"", "void"} and "DispatchKeySet" not in t]
            if takes and "StableIValue" in takes[0]:  # it unboxes its arguments itself
                continue
            line = cpp_text.line_of(code, match.start())
            returns = _plain((body[1] or before).strip(), aliases)
            found.setdefault(match[1], []).append(_Function(path, line, takes, returns))
    return found


def _classes(code: str) -> list[tuple[int, int]]:
    """Where the classes of a file begin and end; nested ones are left out."""
    spans = [(0, 0)]
    for match in _CLASS.finditer(code):
        if match.start() >= spans[-1][1]:
            spans.append((match.start(), cpp_text.closing(code, match.end() - 1) % len(code)))
    return spans


def _aliases(code: str) -> dict[str, str]:
    """Types that a file names once, by that name."""
    found: dict[str, set[str]] = {}
    for name, target, of, typedef in _ALIAS.findall(code):
        found.setdefault(name or typedef, set()).add((target or of).strip())
    return {name: targets.pop() for name, targets in found.items() if len(targets) == 1}


def _plain(text: str, aliases: Mapping[str, str]) -> str:
    return re.sub(r"\w+", lambda match: aliases.get(match[0], match[0]), text)


def _difference(schema: re.Match[str], function: _Function) -> str:
    """What a schema has and C++ has not, up to the function's name; empty if they may agree."""
    declared = [text for text in cpp_text.split(schema["args"]) if text not in {"", "*"}]
    if "..." in declared or any("..." in each for each in function.takes):
        return ""
    counted = f"{len(declared)} argument{'' if len(declared) == 1 else 's'}"
    if len(declared) != len(function.takes):
        return f"{counted}, C++ takes {len(function.takes)} in"
    for argument, cpp in zip(declared, function.takes, strict=True):
        if not _agree(argument.partition("=")[0], cpp):
            return f"{argument}, C++ takes {cpp} in"
    several = re.fullmatch(r"\((.*)\)", schema["returns"].strip())
    wanted = [each for each in cpp_text.split(several[1] if several else schema["returns"]) if each]
    made = _results(function.returns)
    if made is None or "..." in wanted:
        return ""
    if len(wanted) != len(made) or not all(map(_agree, wanted, made)):
        return f"-> {schema['returns'].strip()}, C++ returns {function.returns} from"
    return ""


def _agree(declared: str, cpp: str) -> bool:
    """Whether a schema's type and a C++ type may be the same; each may have a name behind it."""
    match = ARGUMENT.fullmatch(declared.strip())
    text = re.sub(r"\([^()]*\)|[!\s]|(?<=\[)\d+", "", match["type"] if match else declared)
    text = text.replace("SymInt", "int")
    known = _cpp_type(cpp) or _cpp_type(re.sub(r"\s*\b\w+$", "", cpp)) or ""
    wanted, given = text.rstrip("?[]"), known.rstrip("?[]")
    if wanted not in _KNOWN or not known:
        return True
    same = wanted == given or ({wanted, given} <= _INTEGERS and (wanted, given) != ("int", "int32"))
    return same and text[len(wanted) :] == known[len(given) :]


def _cpp_type(text: str) -> str:
    """A C++ type as a schema writes it; empty if it is unknown."""
    bare = " ".join(re.sub(r"\b(?:const|volatile)\b|&|^\s*::", " ", text).split())
    generic = _GENERIC.fullmatch(bare)
    if generic is None:
        return _OF_CPP.get(re.sub(r"^unsigned (?=long)", "", bare.rpartition("::")[2]), "")
    inner = _cpp_type(cpp_text.split(generic[2])[0])
    wrapper = _WRAPPERS.get(generic[1], "")
    return inner + wrapper if inner and wrapper else ""


def _results(text: str) -> list[str] | None:
    """The types that a function returns; None where they are unknown."""
    several = re.fullmatch(r"(?:std::)?tuple\s*<(.*)>", text, re.DOTALL)
    if several:
        return cpp_text.split(several[1])
    return [] if text == "void" else [text] if _cpp_type(text) else None
