# SPDX-License-Identifier: Apache-2.0
"""Operator schemas: found in the sources that register them, and parsed.

The grammar is torch's, ``name.overload(Type arg=default, *, Type arg) -> Type``. The strings are
taken from ``.def("...")`` in C++ and CUDA sources when a variant is built, and recorded in its
metadata. They are not taken from the binary: torch's full C++ API copies a literal into a
``std::string``, and a compiler stores such a literal in pieces that cannot be joined again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator

from kernforge.source import cpp_text
from kernforge.source.python_api import ApiEntry, Parameter

_DEFINES = re.compile(r"[.>]\s*def\s*\((?=(\s*)[,)])")
_DEFINE = re.compile(r"[.>]\s*def\s*\(")
SCHEMA = re.compile(
    r"(?:\w+::)?(?P<name>[A-Za-z_]\w*(?:\.\w+)?)\s*\((?P<args>.*)\)\s*->\s*(?P<returns>.+)",
    re.DOTALL,
)
_NAME = re.compile(r"(?:\w+::)?(\w+(?:\.\w+)?)")
_MUTATED = re.compile(r"\([a-z]+!(?:\s*->\s*[^)]*)?\)")
ARGUMENT = re.compile(r"(?P<type>\S.*?)(?:\s+(?P<name>[A-Za-z_]\w*))?", re.DOTALL)
_FORM = re.compile(
    r"(?:(?P<type>[\w.]+)\b|(?=\())(?:\s*(?:\((?:[^()]|\([^()]*\))*\)|\[\d*\]|[?!]))*"
    r"\s*\b[A-Za-z_]\w*(?:\s*=\s*\S.*)?",
    re.DOTALL,
)
# What C++ and Python call the types.
_MEANT = {
    **dict.fromkeys(("double", "float32", "float64", "half"), "float"),
    **dict.fromkeys(("int32_t", "int64_t", "size_t", "long"), "int"),
    "tensor": "Tensor",
    "string": "str",
    "void": "()",
}
# All of torch/csrc/jit/frontend/schema_type_parser.cpp, but for classes, whose names have a dot.
_TYPES = frozenset(
    (
        *("Tensor", "int", "float", "bool", "str", "complex", "SymInt", "SymBool", "Scalar"),
        *("ScalarType", "Layout", "MemoryFormat", "Device", "Stream", "Generator", "Storage"),
        *("QScheme", "Quantizer", "ConstQuantizerPtr", "Capsule", "Any", "AnyClassType"),
        *("AnyEnumType", "None", "NoneType", "Dict", "Future", "Await", "RRef", "Union"),
    )
)


def schemas_in(source: str) -> tuple[str, ...]:
    """The schemas that a C++ source registers, or bare names where torch infers the schema.

    Adjacent literals are joined, as a compiler does. Both branches of a preprocessor condition
    count; a name or schema that a macro makes is not found.
    """
    texts = (" ".join(text.split()) for _, text in _defined(source))
    return tuple(dict.fromkeys(s for s in texts if SCHEMA.fullmatch(s) or _NAME.fullmatch(s)))


def schema_lines(source: str) -> list[tuple[int, str]]:
    """Schemas that a C++ source registers unconditionally, right or wrong, with their lines.

    Not those that depend on a preprocessor condition, nor the names of which torch infers a schema.
    """
    if "TORCH_LIBRARY" not in source:
        return []
    code = cpp_text.code(source)
    return [
        (cpp_text.line_of(source, start), " ".join(text.split()))
        for start, text in _defined(source)
        if "(" in text and not cpp_text.is_conditional(code, start)
    ]


def mistake(schema: str) -> str:
    """Why torch cannot read a schema with arguments, in words; empty where nothing is surely wrong.

    The grammar is that of ``torch/csrc/jit/frontend/function_schema_parser.cpp``.
    """
    match = SCHEMA.fullmatch(schema)
    if match is None or match["returns"].count("(") != match["returns"].count(")"):
        return "it is not a name, its arguments in parentheses, -> and what it returns"
    for text in cpp_text.split(match["args"]) if match["args"].strip() else ():
        form = _FORM.fullmatch(text)
        if form and (meant := _meant(form["type"] or "")):
            return f"{form['type']} is no type of a schema, write {meant}"
        if form is None and text not in {"*", "..."}:
            return f"the argument {text!r} is not a type and a name, with or without =default"
    for text in cpp_text.split(match["returns"].strip().removeprefix("(").removesuffix(")")):
        word = re.match(r"[\w.]*", text)
        if word and (meant := _meant(word[0])):
            return f"{word[0]} is no type of a schema, write {meant}"
    return ""


def names(sources: Iterable[str]) -> frozenset[str] | None:
    """Names of the operators that sources define; None where one of them cannot be read."""
    found: set[str] = set()
    for source in sources:
        if not _DEFINE.search(source):
            continue
        texts = [text for _, text in _defined(source)]
        if len(texts) < len(_DEFINE.findall(cpp_text.code(source))):
            return None
        found |= {text.partition("(")[0].rpartition("::")[2].partition(".")[0] for text in texts}
    return frozenset(found)


def _meant(name: str) -> str:
    """The type that a name is certainly a misspelling of; empty for another name."""
    if name in _TYPES or "." in name:
        return ""
    return _MEANT.get(name) or next(iter(difflib.get_close_matches(name, sorted(_TYPES), 1)), "")


def _defined(source: str) -> Iterator[tuple[int, str]]:
    """The string that each ``.def(`` has first, and where that begins."""
    for match in _DEFINES.finditer(cpp_text.code(source)):
        if literal := cpp_text.literal(source[match.start(1) : match.end(1)]):
            offset, text = literal
            yield match.start(1) + offset, text


def read_operators(schemas: Iterable[str]) -> dict[str, ApiEntry]:
    """The operators by ``ops.<name>``, with their parameters if the schema gives them."""
    return dict(sorted(_read_operator(schema) for schema in schemas))


def _read_operator(schema: str) -> tuple[str, ApiEntry]:
    match = SCHEMA.fullmatch(schema.strip())
    if match is None:
        bare = _NAME.fullmatch(schema.strip())
        return f"ops.{bare[1] if bare else schema}", ApiEntry(kind="operator")
    by_name = False
    parameters = []
    for text in cpp_text.split(match["args"]):
        if text == "*":
            by_name = True
        elif not text:
            continue
        else:
            parameters.append(_parameter(text, by_name=by_name))
    returns = _type(match["returns"])
    entry = ApiEntry(kind="operator", parameters=tuple(parameters), returns=returns)
    return f"ops.{match['name']}", entry


def _parameter(text: str, *, by_name: bool) -> Parameter:
    declared, equals, default = text.partition("=")
    match = ARGUMENT.fullmatch(declared.strip())
    return Parameter(
        name=(match["name"] or "") if match else "",
        passed="by name" if by_name else "either way",
        default=default.strip() if equals else None,
        type=_type(match["type"] if match else declared),
    )


def _type(text: str) -> str:
    """The type in one spelling: the letter that marks a mutation has no meaning."""
    return re.sub(r"\s+", "", _MUTATED.sub("!", text))
