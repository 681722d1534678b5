# SPDX-License-Identifier: Apache-2.0
"""Translate pybind11 bindings to ``TORCH_LIBRARY``.

``PYBIND11_MODULE`` is replaced where it stands by a fragment of the build's op namespace, so that
functions which only that source sees stay reachable. Read are the forms that nearly all projects
use: ``m.def`` of a function by its name, with a docstring, ``py::arg`` and literal defaults. A
schema comes from the C++ function; a type that an operator cannot have (``float``, ``int``) is
converted by a lambda. Everything else is a remark with its line.
"""

from __future__ import annotations

import keyword
import re
import string
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernforge.adopt.program import Remark
from kernforge.source import cpp_text, op_namespace, op_schema

_BLOCK = re.compile(
    r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,\s*(?P<handle>\w+)(?:[^()]|\(\))*\)\s*(?P<open>\{)"
)
_TORCH_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"]torch/extension\.h[>\"]", re.MULTILINE
)
_PYTHON_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:torch/python\.h|Python\.h|pybind11/[^>\"]*"
    r"|torch/csrc/utils/pybind\.h)[>\"]|^[ \t]*namespace\s+py\s*=\s*pybind11\s*;",
    re.MULTILINE,
)
_WHOLE_TORCH = re.compile(
    r"\btorch\s*::\s*(?:nn|optim|autograd|jit|data|serialize|save|load)\b|\bAutogradContext\b"
)
_GROUP = r"(?:[^,;{}()]|\((?:[^()]|\([^()]*\))*\))*"
_NOTES = (
    (re.compile(r"\bPyInit_\w+"), "left", "`{}`: REGISTER_EXTENSION makes the module: remove it"),
    (
        re.compile(r"\b(?:py|pybind11)\s*::\s*\w+|\bPYBIND11_\w+"),
        "left",
        "`{}`: a kernel has no pybind11: move it to Python",
    ),
    (
        re.compile(rf"<<<{_GROUP}(?:,{_GROUP}){{1,2}}>>>"),
        "check",
        "the launch is on the default stream; pass at::cuda::getCurrentCUDAStream() as the fourth",
    ),
)
"""Code that is not translated: pattern, kind of the remark, and its text."""
_ARG = re.compile(r'(?:(?:py|pybind11)::arg\(\s*"(\w+)"\s*\)|"(\w+)"_a)\s*(?:=\s*(.*))?', re.DOTALL)
_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[fFlLuU]*")
_CONSTANTS = {
    "true": "True",
    "false": "False",
    **dict.fromkeys(("py::none()", "c10::nullopt", "std::nullopt", "nullptr"), "None"),
}
_WRAPPED = re.compile(
    r"(?:torch\s*::\s*)?wrap_pybind_function(?:_no_gil)?\s*\((?P<function>.*)\)", re.DOTALL
)
_IN_PLACE = r"\s*\.\s*(?!requires_grad_|is_|sizes_)\w*[a-z]_\s*\("

# What may write to a tensor: a pointer to its data, or a function that gets it.
_WRITES = (
    r"(?:\s*\.\s*(?:mutable_data_ptr|data_ptr|accessor|packed_accessor\d*)\s*"
    r"(?:<(?!\s*const)|\()|\s*[,)])"
)
# -- functions and types -----------------------------------------------------------------------

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\)*", re.MULTILINE)
_SPECIFIER = re.compile(
    r'\bextern\s*"C"|\b(?:static|inline|extern|constexpr|__host__|__forceinline__|[A-Z_]+_API)\b'
    r"|\[\[.*?\]\]"
)
_NOT_A_TYPE = re.compile(
    r"\b(?:template|return|else|new|throw|case|goto|using|typedef|define)\b|[=+\-/|!?.,(\[]"
)
_BODY = re.compile(r"\s*(?:noexcept\s*)?(?P<end>[{;])")
_PARAMETER = re.compile(r"(?P<type>.*?[\s&*>\]])(?P<name>[A-Za-z_]\w*)", re.DOTALL)
_PREFIX = re.compile(r"\b(?:torch|at|c10|std)\s*::\s*")
_GENERIC = re.compile(r"(optional|vector|ArrayRef|tuple)\s*<\s*(.*?)\s*>")
_RESULT = re.compile(r"(?:std\s*::\s*)?(tuple|pair|optional)\s*<(.*)>", re.DOTALL)
_CLASS = re.compile(r"\b(?:class|struct|union)\s+(?:\w+\s*\([^()]*\)\s*)?(\w+)\b[^;{}()=]*\{")
_SCHEMA_TYPES = {
    "void": "()",
    "Tensor": "Tensor",
    "bool": "bool",
    "double": "float",
    "int64_t": "int",
    "string": "str",
    "string_view": "str",
    "ScalarType": "ScalarType",
    "Dtype": "ScalarType",
    "Device": "Device",
    "Scalar": "Scalar",
    "IntArrayRef": "int[]",
    "TensorList": "Tensor[]",
}
# Numbers that an operator cannot have, and what it takes in their place.
_WIDENED = {
    "float": "double",
    **dict.fromkeys(
        (
            *("int", "long", "long long", "short", "unsigned", "unsigned int", "unsigned long"),
            *("long int", "size_t", "ssize_t", "index_t", "int8_t", "int16_t", "int32_t"),
            *("uint8_t", "uint16_t", "uint32_t", "uint64_t"),
        ),
        "int64_t",
    ),
}


class TranslationError(Exception):
    """A binding that cannot be translated; the text is the reason."""


class Type(NamedTuple):
    """A type in a schema, its C++ spelling, and the wider number of the operator, if it differs."""

    schema: str
    cpp: str
    wide: str


def _type(written: str, use: str) -> Type:
    """The type of a C++ spelling."""
    plain = " ".join(re.sub(r"\bconst\b|&", " ", _PREFIX.sub("", written)).split())
    wide = _WIDENED.get(plain, "")
    schema = _schema_type(wide or plain)
    if not schema or written.endswith("&&"):
        raise TranslationError(f"an operator cannot {use}")
    return Type(schema, plain if wide else written, wide)


def _result(written: str) -> Type:
    """The type of a function's result; the numbers in a tuple, pair or optional are widened."""
    if not (match := _RESULT.fullmatch(written)):
        return _type(written, f"return `{written}`")
    parts = [part.strip() for part in cpp_text.split(match[2])]
    made = "optional" if match[1] == "optional" else "tuple"
    wide = f"std::{made}<{', '.join(_WIDENED.get(part, part) for part in parts)}>"
    is_wide = match[1] == made and not any(part in _WIDENED for part in parts)
    return _type(wide, f"return `{written}`")._replace(wide="" if is_wide else wide)


def _schema_type(plain: str) -> str:
    """The name of a C++ type in a schema; empty if it has none."""
    if not (match := _GENERIC.fullmatch(plain)):
        return _SCHEMA_TYPES.get(plain, "")
    inner = [_schema_type(part) for part in cpp_text.split(match[2])]
    if not all(inner):
        return ""
    if match[1] == "tuple":
        return f"({', '.join(inner)})"
    if match[1] == "optional":
        return f"{inner[0]}?"
    return "" if inner[0].endswith(("?", "]")) else f"{inner[0]}[]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that a source declares or defines.

    Attributes:
        returns: spelling of the type.
        parameters: type and name of each; the name may be empty.
        body: text of the body; empty for a declaration.
    """

    returns: str
    parameters: tuple[tuple[str, str], ...]
    body: str


def _functions(text: str, name: str, classes: Collection[str], of: str) -> Iterator[Function]:
    """Declarations and definitions of a function in a source.

    Args:
        classes: the names of the module's classes.
        of: the class of a static member; empty for a function of no class.
    """
    # A macro's text has semicolons and calls of its own.
    code = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), cpp_text.code(text))
    bodies = [(m[1], m.end(), cpp_text.closing(code, m.end() - 1)) for m in _CLASS.finditer(code)]
    named = rf"(?<![\w.>:])(?P<scope>(?:\w+\s*::\s*)*){re.escape(name)}\s*\("
    for match in re.finditer(named, code):
        around = [cls for cls, start, stop in bodies if start <= match.start() < stop]
        owner = (around or re.findall(r"\w+", match["scope"]) or [""])[-1]
        if (owner if owner in classes else "") != of:
            continue
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        end = cpp_text.closing(code, match.end() - 1)
        after = _BODY.match(code, end + 1)
        returns = " ".join(_SPECIFIER.sub(" ", code[begin : match.start()]).split())
        if not after or not returns or _NOT_A_TYPE.search(re.sub(r"<.*>", "", returns)):
            continue
        opened = after.end() - 1
        is_definition = after["end"] == "{"
        yield Function(
            returns=returns,
            parameters=tuple(_parameters(code[match.end() : end])),
            body=text[opened + 1 : cpp_text.closing(code, opened)] if is_definition else "",
        )


def _parameters(code: str) -> Iterator[tuple[str, str]]:
    for part in cpp_text.split(code):
        declared = " ".join(part.partition("=")[0].split())
        match = _PARAMETER.fullmatch(declared)
        if match and match["type"].strip() not in {"const", "unsigned", "long"}:
            yield match["type"].strip(), match["name"]
        elif declared not in {"", "void"}:
            yield declared, ""


# -- a source ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator that a source registers.

    Attributes:
        name: of the Python function.
        schema: with the operator's name in the build's namespace, which is another one where
            modules have the same name; that name alone where the registration gives no schema.
        doc: docstring of the Python function.
    """

    name: str
    schema: str
    doc: str


@dataclass(slots=True, kw_only=True)
class Source:
    """A C++ or CUDA source of a module.

    Attributes:
        path: relative to the project, for remarks.
        text: replaced by what ``translate`` makes of it.
        texts: texts of the sources in which bound functions may be.
        keys: dispatch keys that the source is built for, some of ``CPU`` and ``CUDA``.
        prefix: what the names of operators begin with, where two modules have the same names.
        remarks: gets what the user should know.
        operators: gets the operators that the source registers.
    """

    path: str
    text: str
    texts: Iterable[str]
    keys: tuple[str, ...]
    prefix: str
    remarks: list[Remark]
    operators: list[Operator] = field(default_factory=list)

    def translate(self) -> None:
        """Replace bindings by registrations, and Python's headers by torch's."""
        self.text = op_namespace.LIBRARY.sub(self._library, self.text)
        code = cpp_text.code(self.text)
        start = stop = 0
        lines: list[str] = []
        match = _BLOCK.search(code)
        if match and (closing := cpp_text.closing(code, match.start("open"))) > 0:
            start, stop = match.start(), closing + 1
            lines = list(self._block(code[:closing], match.end(), match["handle"]))
        for pattern, kind, text in _NOTES:
            matches = [m for m in pattern.finditer(code) if not start <= m.start() < stop]
            for first in {m[0]: m for m in reversed(matches)}.values():
                self._remark(first.start(), text.format(first[0]), kind)
        if lines:
            lines = ["TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, ops) {", *lines, "}"]
        self.text = "".join((self.text[:start], "\n".join(lines), self.text[stop:]))
        self._replace_headers()

    def _remark(self, offset: int, text: str, kind: str = "left") -> None:
        line = cpp_text.line_of(self.text, offset)
        self.remarks.append(Remark(self.path, line, text, kind))

    def _library(self, match: re.Match[str]) -> str:
        """Head of a ``TORCH_LIBRARY`` block with the op namespace of the build."""
        code = cpp_text.code(self.text)
        if code[match.start()].isspace():  # of a comment or a literal
            return match[0]
        if match["name"] != op_namespace.EXTENSION_NAME:
            text = f"op namespace {match['name']} replaced by that of the build"
            self._remark(match.start(), text, "changed")
        for op, schema in _declared(self.text, code, match):
            self._add(op.partition(".")[0], schema)
        kind = match["kind"] or "_FRAGMENT"
        return f"{match['stable'] or ''}TORCH_LIBRARY{kind}({op_namespace.EXTENSION_NAME},"

    def _add(self, name: str, schema: str, doc: str = "") -> None:
        doc = doc or f"The operator {schema.partition('(')[0]} of {self.path}."
        self.operators.append(Operator(name=name, schema=schema, doc=doc))

    def _block(self, code: str, begin: int, handle: str) -> Iterator[str]:
        """Registrations for the statements of a PYBIND11_MODULE block."""
        statement = re.compile(
            rf"^[ \t]*#[^\n]*|\b{handle}\s*\.\s*doc\b[^;]*|\b{handle}\s*\.\s*def\s*\((?P<def>)|\Z",
            re.MULTILINE,
        )
        while begin < len(code) and (match := statement.search(code, begin)):
            if other := re.compile(r"[^;\s]").search(code, begin, match.start()):
                words = " ".join(self.text[other.start() : match.start()].split())[:60]
                reason = "cannot become an operator; write it in Python"
                self._remark(other.start(), f"`{words}` {reason}")
            begin = match.end()
            if match["def"] is not None:
                stop = cpp_text.closing(code, begin - 1)
                parts = cpp_text.split(self.text[begin:stop])
                at = begin + self.text[begin:stop].index(parts[0])
                try:
                    yield from self._register(parts, at)
                except TranslationError as error:
                    self._remark(at, f"{parts[0]}: {error}".replace('"', ""))
                begin = stop + 1
            elif match[0].lstrip().startswith("#"):
                yield self.text[match.start() : begin].rstrip()

    def _register(self, parts: Sequence[str], at: int) -> Iterator[str]:
        """Registration of the function that ``m.def(...)`` binds.

        Args:
            parts: arguments of ``m.def``: the name, the function, then its docstring and arguments.
            at: offset of the name.
        """
        name = (cpp_text.literal(parts[0]) or (0, ""))[1]
        if not name.isidentifier() or keyword.iskeyword(name):
            raise TranslationError("not a name of a Python function; rename it")
        if name in _declared_in(self.texts):
            self._remark(at, f"{name} is the operator that TORCH_LIBRARY registers", "changed")
            return
        if any(each.name == name for each in self.operators):
            raise TranslationError("bound twice; rename an overload")
        called = "".join(parts[1:2]).strip()
        called = (
            wrapped["function"] if (wrapped := _WRAPPED.fullmatch(called)) else called
        ).strip()
        called = called.removeprefix("&").strip()
        function = self._function(called)
        types = [_type(cpp, f"take `{f'{cpp} {n}'.strip()}`") for cpp, n in function.parameters]
        result = _result(function.returns)
        docs = [literal[1] for part in parts[2:] if (literal := cpp_text.literal(part))]
        arguments = [m for part in parts[2:] if (m := _ARG.fullmatch(part))]
        if arguments and len(arguments) != len(types):
            raise TranslationError('each argument needs a py::arg("name"), or none has one')
        pairs = zip(arguments, types, strict=False)
        bound = [(m[1] or m[2], _default(m[3], kind.schema)) for m, kind in pairs]
        bound = bound or [(n or f"arg{k}", "") for k, (_, n) in enumerate(function.parameters)]
        names = [word for word, _ in bound]
        if reserved := [word for word in names if keyword.iskeyword(word)]:
            raise TranslationError(f"rename the argument {reserved[0]}, a keyword of Python")
        schemas, returns = [kind.schema for kind in types], result.schema
        mutated = list(_mutated(function, types, result))
        for mark, k in zip(string.ascii_lowercase, mutated, strict=False):
            schemas[k] = schemas[k].replace("Tensor", f"Tensor({mark}!)", 1)
            own = re.escape(function.parameters[k][1])
            if returns == "Tensor" and re.search(rf"\breturn\s+{own}\s*;", function.body):
                returns = f"Tensor({mark}!)"
        op = f"{self.prefix}{name}"
        declared = (f"{t} {word}{value}" for t, (word, value) in zip(schemas, bound, strict=True))
        schema = f"{op}({', '.join(declared)}) -> {returns}"
        self._add(name, schema, "".join(docs))
        if "Tensor" not in result.schema and mutated:
            marked = ", ".join(names[k] for k in mutated)
            note = f"{name} returns no tensor, so each of {marked} is declared as written to "
            note += "(`!` in the schema); remove the mark of what it only reads"
            self._remark(at, note, "check")
        call = _adapter(called, names, types, result)
        has_tensor = any("Tensor" in kind.schema for kind in types)
        if not has_tensor or "::apply(" in function.body:  # autograd's functions are of no device
            yield f"  ops.def({cpp_text.quoted(schema)}, {call});"
            return
        yield f"  ops.def({cpp_text.quoted(schema)});"
        yield from (f'  ops.impl("{op}", torch::k{key}, {call});' for key in self.keys)

    def _function(self, called: str) -> Function:
        """Find a function in this source, else in the other sources of its module."""
        if not re.fullmatch(r"[\w:]+", called):
            text = " ".join(called.split())[:60]
            raise TranslationError(
                f"`{text}` is not the name of a function: write one, and bind it"
            )
        last = called.rpartition("::")[2]
        classes = {name for text in self.texts for name in _CLASS.findall(cpp_text.code(text))}
        of = next((each for each in classes if called.endswith(f"{each}::{last}")), "")
        functions = list(_functions(self.text, last, classes, of))
        if not any(each.body for each in functions):
            functions = [f for text in self.texts for f in _functions(text, last, classes, of)]
        # A header may declare what no source defines any more.
        functions = [each for each in functions if each.body] or functions
        if not functions:
            raise TranslationError(f"no declaration of {last} in the module's sources")
        if len({tuple(_PREFIX.sub("", cpp) for cpp, _ in f.parameters) for f in functions}) > 1:
            raise TranslationError(f"{last} is overloaded; rename the overloads")
        return max(functions, key=lambda each: all(name for _, name in each.parameters))

    def _replace_headers(self) -> None:
        """Replace Python's headers by torch's."""
        whole = "all" if _WHOLE_TORCH.search(cpp_text.code(self.text)) else "types"
        text = _TORCH_INCLUDE.sub(f"#include <torch/{whole}.h>", self.text)
        text = _PYTHON_INCLUDE.sub("", text)
        library = "#include <torch/library.h>\n"
        if self.operators and library not in text:
            first = re.search(r"^[ \t]*#[ \t]*include", text, re.MULTILINE)
            at = first.start() if first else 0
            text = f"{text[:at]}{library}{text[at:]}"
        self.text = text


def _declared(text: str, code: str, library: re.Match[str]) -> Iterator[tuple[str, str]]:
    """The operators that a ``TORCH_LIBRARY`` block declares: name and schema in its namespace.

    Args:
        code: the text without comments.
        library: match of the head of the block.
    """
    if library["kind"] == "_IMPL" or code[library.start()].isspace():
        return
    opened = code.find("{", library.end())
    for schema in op_schema.schemas_in(text[opened : cpp_text.closing(code, opened)]):
        head, bracket, rest = schema.partition("(")
        op = head.rpartition("::")[2].strip()
        yield op, f"{op}{bracket}{rest}"


def _declared_in(texts: Iterable[str]) -> set[str]:
    """Names of the operators that ``TORCH_LIBRARY`` blocks of some sources declare."""
    found = [(t, cpp_text.code(t), m) for t in texts for m in op_namespace.LIBRARY.finditer(t)]
    return {op.partition(".")[0] for each in found for op, _ in _declared(*each)}


def _default(text: str | None, kind: str) -> str:
    """Default of an argument in a schema, as ``=1``; empty without one.

    Args:
        kind: type of the argument in the schema.
    """
    if text is None:
        return ""
    plain = text.strip()
    if literal := cpp_text.literal(plain):
        return f"={cpp_text.quoted(literal[1])}"
    if number := _NUMBER.fullmatch(plain):
        return f"={number[1]}{'.' if kind == 'float' and number[1].isdecimal() else ''}"
    if plain in _CONSTANTS:
        return f"={_CONSTANTS[plain]}"
    raise TranslationError(f"the default `{plain}` of an argument is not a literal")


def _mutated(function: Function, types: Sequence[Type], result: Type) -> Iterator[int]:
    """Indices of mutated tensors.

    Those of a function that returns nothing, and of one that returns a number, as a status, where
    it has a pointer to the data or another function gets the tensor.
    """
    for at, ((cpp, name), kind) in enumerate(zip(function.parameters, types, strict=True)):
        in_place = name and re.search(rf"\b{name}{_IN_PLACE}", function.body)
        has_access = not function.body or re.search(rf"\b{name}{_WRITES}", function.body)
        fills = function.returns == "void" or ("Tensor" not in result.schema and has_access)
        fills = fills and "const" not in cpp
        if kind.schema.startswith("Tensor") and (in_place or fills):
            yield at


def _adapter(called: str, names: Sequence[str], types: Sequence[Type], result: Type) -> str:
    """Registered callable: the user's function, or a lambda that converts numbers."""
    if not any(kind.wide for kind in (*types, result)):
        return f"&{called}"
    pairs = list(zip(types, names, strict=True))
    taken = ", ".join(f"{kind.wide or kind.cpp} {name}" for kind, name in pairs)
    passed = ", ".join(f"static_cast<{k.cpp}>({name})" if k.wide else name for k, name in pairs)
    call = f"{called}({passed})"
    call = f"static_cast<{result.wide}>({call})" if result.wide else call
    return f"[]({taken}) {{ return {call}; }}"


def with_c_linkage(text: str, texts: Iterable[str]) -> tuple[str, dict[str, int]]:
    """Add ``extern "C"`` to declarations whose definitions have it.

    Args:
        text: a C++ source.
        texts: those of the sources in which functions are defined.

    Returns:
        The text, and the line of each declaration that was changed, by name.
    """
    functions = re.compile(r'\bextern\s*"C"\s*[^;{}()]*?\b(\w+)\s*\(')
    defined = "|".join(name for each in texts for name in functions.findall(each)) or "$^"
    declaration = re.compile(
        r"^[ \t]*(?!return\b)(?=(?:[\w:<>]+[\s&*]+)+"
        rf"(?P<name>{defined})\s*\([^;{{}}()]*\)\s*;)",
        re.MULTILINE,
    )
    lines = {m["name"]: cpp_text.line_of(text, m.end()) for m in declaration.finditer(text)}
    return declaration.sub(r'\g<0>extern "C" ', text), lines
