# SPDX-License-Identifier: Apache-2.0
"""Errors of a C++ compiler that no further header can prevent, and the name that an error misses.

Headers bring names. Five kinds of errors are not about a name that is missing: a statement that does
not end, a parenthesis that is not closed, a member of a class whose definition is known, an operator
between types of C++ and CUDA, and a file that is not there. The messages are those of GCC, of Clang
and of nvcc's front end.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.source import cpp_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.source.diagnostics import Diagnostic

# GCC: expected ',' or ';' before 'auto'. Clang and nvcc name only what they expect.
_EXPECTED = re.compile(
    r"expected (?:a )?(?:'[,;)\]]'|\"[;)\]]\")(?: or '[;)]')?"
    r"(?: before '(?P<next>[^']+)'(?: token)?"
    r"| (?:after|at end of) [^\n]*)?(?:\n|$)"
)
_CLOSES = re.compile(r"expected (?:a )?['\"][)\]]['\"]")
# What starts or ends a statement. An identifier may be a macro whose header is missing.
_STATEMENT = frozenset(
    [
        *("auto", "break", "case", "const", "constexpr", "continue", "default", "delete", "do"),
        *("double", "else", "float", "for", "if", "int", "long", "return", "static", "switch"),
        *("throw", "try", "typename", "unsigned", "using", "void", "while", "bool", "char", "}"),
    ]
)
_TOKEN = re.compile(r"\s*([A-Za-z_]\w*|.)", re.DOTALL)
_BODY = re.compile(r"\)\s*(?:const\s*|noexcept\s*|mutable\s*)*(?:->[^;{}]*)?$")
# A specialization of a template may be in a header that is missing: no type with arguments.
_NO_MEMBER = re.compile(
    r"""(?:'(?:const )?(?:class|struct|union) [\w:]+'(?: \{aka '[^'<]*'\})? has no member named '"""
    r"""|no member named '\w+' in '[\w:]+'"""
    r"""|(?:class|struct|union) "[\w:]+"(?: \(aka "[^"<]*"\))? has no member ")"""
)
_NO_FILE = re.compile(r"[^\s:]+: No such file or directory")
# GCC: (operand types are 'unsigned int' and 'uint3'); nvcc: operand types are: unsigned int + uint3.
_OPERANDS = re.compile(
    r"no (?:match for 'operator|operator \").*?operand types are:?(?P<types>[^\n)]*)", re.DOTALL
)
# Types for which torch's headers define no operators; cuda_fp16.h and cuda_bf16.h do for theirs.
_PLAIN_TYPE = re.compile(
    r"and|const|volatile|unsigned|signed|bool|char|short|int|long|float|double|size_t|u?int\d+_t|dim3"
    r"|u?(?:char|short|int|long|longlong|float|double)[1-4]|(?:__)?half2?|(?:__)?nv_bfloat16[2]?"
)
_MISSING = (
    re.compile(r"'(?P<name>\w+)' (?:was not declared|has not been declared|does not name a type)"),
    re.compile(r"'(?P<name>\w+)' is not a member of '"),
    re.compile(r"'(?P<name>\w+)' in (?:namespace|class|struct) '[^']*' does not name a type"),
    re.compile(r"use of undeclared identifier '(?P<name>\w+)'"),
    re.compile(r"unknown type name '(?P<name>\w+)'"),
    re.compile(r"no (?:member|type|template) named '(?P<name>\w+)' in (?:the global )?namespace"),
    re.compile(r'identifier "(?P<name>\w+)" is undefined'),
    re.compile(r'namespace "[^"]*" has no (?:actual )?member "(?P<name>\w+)"'),
)


def is_final(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Whether the first error of a source stays, whatever further headers it gets.

    Args:
        texts: the user's files, with the ``#line`` directives that give parts of them other names.
    """
    if _NO_MEMBER.match(error.message) or _NO_FILE.match(error.message):
        return True
    if operands := _OPERANDS.match(error.message):
        return all(map(_PLAIN_TYPE.fullmatch, re.findall(r"\w+", operands["types"])))
    expected = _EXPECTED.match(error.message)
    if expected is None:
        return False
    place = _place(error, texts)
    if place is None:
        return False
    text, offset = place
    code = cpp_text.code(text)
    token = _TOKEN.match(code, offset)
    following = expected["next"] or (token[1] if token else "")
    ends = following in _STATEMENT or (following == ";" and _CLOSES.match(error.message))
    return bool(ends) and _is_in_body(code[:offset])


def missing_name(error: Diagnostic) -> str:
    """The one name that an error says is not declared; empty if it says something else."""
    found = (pattern.match(error.message) for pattern in _MISSING)
    return next((match["name"] for match in found if match), "")


def _place(error: Diagnostic, texts: Mapping[str, str]) -> tuple[str, int] | None:
    """The text that has an error, and the offset of its line and column."""
    directive = re.compile(
        rf'^[ \t]*#[ \t]*line[ \t]+(\d+)[ \t]+"{re.escape(error.file)}"[^\n]*\n', re.MULTILINE
    )
    for path, text in texts.items():
        start, first = 0, 1
        if path != error.file:
            match = directive.search(text)
            if match is None:
                continue
            start, first = match.end(), int(match[1])
        lines = text[start:].splitlines(keepends=True)
        if error.line - first in range(len(lines)):
            before = sum(map(len, lines[: error.line - first]))
            return text, start + before + max(0, error.column - 1)
    return None


def _is_in_body(code: str) -> bool:
    """Whether a text of code ends in the body of a function.

    Outside of one, a macro whose header is missing looks like the declaration of a function.
    """
    is_body: list[bool] = []
    for match in re.finditer(r"[{}]", code):
        if match[0] == "{":
            is_body.append(bool(_BODY.search(code[: match.start()].rstrip()[-300:])))
        elif is_body:
            is_body.pop()
    return any(is_body)
