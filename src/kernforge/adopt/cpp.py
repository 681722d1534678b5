# SPDX-License-Identifier: Apache-2.0
"""What C++ text says of functions and their types, without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernforge.source import cpp_text

_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\)*", re.MULTILINE)
_BEFORE_TYPE = re.compile(
    r"\b(?:static|inline|extern|virtual|constexpr|__host__|__forceinline__|TORCH_API|[A-Z_]+_API|API|"
    r"__attribute__\s*\(\(.*?\)\))\b|\[\[.*?\]\]",
    re.DOTALL,
)
_NOT_A_TYPE = re.compile(
    r"\b(?:return|else|new|throw|case|goto|using|typedef|define)\b|[=+\-/|!?.,(\[]"
)
_PARAMETER = re.compile(r"(?P<type>.*?[\s&*>\]])(?P<name>[A-Za-z_]\w*)\s*", re.DOTALL)
_PREFIX = re.compile(r"\b(?:torch|at|c10|std)\s*::\s*")
_SIMPLE = {
    "Tensor": ("Tensor", "torch::Tensor"),
    "bool": ("bool", "bool"),
    "double": ("float", "double"),
    "int64_t": ("int", "int64_t"),
    "string": ("str", "std::string"),
    "ScalarType": ("ScalarType", "at::ScalarType"),
    "Dtype": ("ScalarType", "at::ScalarType"),
    "Device": ("Device", "at::Device"),
    "Scalar": ("Scalar", "at::Scalar"),
    "IntArrayRef": ("int[]", "at::IntArrayRef"),
    "TensorList": ("Tensor[]", "at::TensorList"),
}
# Types that an operator cannot have, with the schema's type and the C++ type that it can have.
_WIDENED = {
    "float": ("float", "double"),
    **dict.fromkeys(
        (
            *("int", "long", "long long", "short", "unsigned", "unsigned int", "unsigned long"),
            *("long int", "size_t", "ssize_t", "index_t", "int8_t", "int16_t", "int32_t"),
            *("uint8_t", "uint16_t", "uint32_t", "uint64_t"),
        ),
        ("int", "int64_t"),
    ),
}


class TranslationError(Exception):
    """Something that an operator cannot be; the text says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """A C++ type as an operator can have it.

    Attributes:
        schema: torch's name in a schema.
        cpp: what the operator's function takes or returns.
        actual: what the user's function has, where it is another type; empty where it is ``cpp``.
    """

    schema: str
    cpp: str
    actual: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CppParameter:
    """A parameter of a function: its type as written, and its name or nothing."""

    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function that a source declares or defines.

    Attributes:
        returns: the type as written; ``auto`` and a trailing type are joined.
        parameters: in order.
        body: text of the body; empty for a declaration.
    """

    returns: str
    parameters: tuple[CppParameter, ...]
    body: str
    is_template: bool


def functions(text: str, name: str) -> Iterator[Function]:
    """Declarations and definitions of a function in a source, definitions with their body."""
    # A macro's text has semicolons and calls of its own.
    code = _DIRECTIVE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), cpp_text.code(text))
    for match in re.finditer(rf"(?<![\w.>]){re.escape(name)}\s*\(", code):
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        before = code[begin : match.start()]
        before = re.sub(r"\btemplate\s*<[^{};]*?>\s*(?=[\w:])", " template ", before)
        before = re.sub(r"(?:\w+\s*::\s*)+$", "", before)
        plain = re.sub(r'extern\s*"C"', " ", before)
        returns = " ".join(_BEFORE_TYPE.sub(" ", plain).split())
        if not returns or _NOT_A_TYPE.search(re.sub(r"<.*>", "", returns)):
            continue
        end = cpp_text.closing(code, match.end() - 1)
        after = (
            re.match(
                r"\s*(?:const|noexcept|override|\s)*(?:->\s*(?P<type>[\w:<>,\s&*]+?)\s*)?(?P<end>[{;])",
                code[end + 1 :],
            )
            if end > 0
            else None
        )
        if after is None:
            continue
        body = ""
        if after["end"] == "{":
            opened = end + 1 + after.end("end") - 1
            body = text[opened + 1 : cpp_text.closing(code, opened)]
        yield Function(
            returns=(after["type"] or returns).strip(),
            parameters=tuple(parameters(code[match.end() : end])),
            body=body,
            is_template="template" in before,
        )


def parameters(code: str) -> Iterator[CppParameter]:
    """The parameters between the brackets of a function, in code without comments."""
    for part in cpp_text.split(code):
        declared = " ".join(part.partition("=")[0].split())
        if declared in {"", "void"}:
            continue
        match = _PARAMETER.fullmatch(declared)
        if match and match["type"].strip() not in {"const", "unsigned", "long"}:
            yield CppParameter(type=match["type"].strip(), name=match["name"])
        else:
            yield CppParameter(type=declared, name="")


def argument_type(parameter: CppParameter) -> Type:
    """A parameter's type as an operator's."""
    text = parameter.type.strip()
    plain = re.sub(r"\bconst\b", " ", text.removesuffix("&"))
    found = _type(" ".join(_PREFIX.sub("", plain).split()))
    if found is None or text.endswith("&&") or "*" in text:
        shown = f"{text} {parameter.name}".rstrip()
        raise TranslationError(f"an operator cannot take `{shown}`")
    return found


def return_type(written: str) -> Type:
    """A result's type as an operator's."""
    text = written.strip()
    if text == "void":
        return Type(schema="()", cpp="void")
    plain = " ".join(_PREFIX.sub("", re.sub(r"\bconst\b|&", " ", text)).split())
    if match := re.fullmatch(r"tuple\s*<(.*)>", plain):
        parts = [_type(part.strip()) for part in cpp_text.split(match[1])]
        known = [part.schema for part in parts if part and not part.actual]
        if len(known) == len(parts):
            return Type(schema=f"({', '.join(known)})", cpp=text)
    elif found := _type(plain):
        return found
    raise TranslationError(f"an operator cannot return `{text}`")


def _type(plain: str) -> Type | None:
    if plain in _SIMPLE:
        schema, cpp = _SIMPLE[plain]
        return Type(schema=schema, cpp=cpp)
    if plain in _WIDENED:
        schema, cpp = _WIDENED[plain]
        return Type(schema=schema, cpp=cpp, actual=plain)
    if plain == "string_view":
        return Type(schema="str", cpp="c10::string_view")
    match = re.fullmatch(r"(optional|vector|ArrayRef)\s*<\s*(.*?)\s*>", plain)
    if match is None:
        return None
    inner = _type(match[2])
    if inner is None or inner.actual:
        return None
    if inner.schema.endswith(("?", "]")) and match[1] != "optional":
        return None
    outer = {"optional": "std::optional", "vector": "std::vector", "ArrayRef": "at::ArrayRef"}[
        match[1]
    ]
    suffix = "?" if match[1] == "optional" else "[]"
    return Type(schema=f"{inner.schema}{suffix}", cpp=f"{outer}<{inner.cpp}>")
