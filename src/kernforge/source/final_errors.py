# SPDX-License-Identifier: Apache-2.0
"""Whether a source that was given fewer of torch's headers would compile with all of them.

To try it takes long, and is in vain if the mistake is the user's. Headers bring names: an error is
final if it is not about a name that is missing, if the name is in no header, or if what is defined
twice is not torch's. The messages are those of GCC, of Clang and of nvcc's front end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping

from kernforge.source import cpp_text, diagnostics
from kernforge.source.diagnostics import Diagnostic

_OF_A_NAME = re.compile(
    r"undefined|not declared|has not been declared|not a member|has no (?:actual )?member"
    r"|no member named|does not name|incomplete|redefinition|already been defined|ambiguous"
    r"|no instance|no matching|No such file|no suitable|must be a class or namespace|expected"
    r"|has not been defined|no operator|no match for|cannot convert|undeclared|unknown type"
)
_TWICE = re.compile(r"redefinition|already been defined|conflicting declaration")
# Names of torch and Python that macros put together, and names that any header of C++ may bring.
_ANYWHERE = re.compile(r"k[A-Z]|_?Py")
_OF_STD = re.compile(r"""["']std\b""")
# Only a keyword, as static_cast, must have this.
_NO_ARGUMENTS = re.compile(r"""expected (?:a )?['"]<['"]""")
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
# GCC: (operand types are 'unsigned int' and 'uint3'); nvcc: operand types are: unsigned int +
# uint3.
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


def lacks_header(
    output: str,
    texts: Mapping[str, str],
    torch: Collection[str],
    occurs: Callable[[str], bool],
) -> bool:
    """Whether a source that failed with fewer of torch's headers may compile with all of them.

    The first error decides: all others may come of it.

    Args:
        output: what the compiler wrote.
        texts: the user's files by path.
        torch: parts of the paths of torch's headers, and of those that are in their place.
        occurs: whether a name is anywhere in torch's headers or in the system's.
    """
    error, *rest = diagnostics.errors(diagnostics.parse(output)) or (None,)
    if error is None or not _OF_A_NAME.search(error.message):
        return False
    notes = itertools.takewhile(lambda each: each.severity == "note", rest)
    if "/" in error.file and error.file not in texts:
        return "incomplete" in error.message or any(part in error.file for part in torch)
    if _TWICE.search(error.message):
        places = (error.message, *(note.file for note in notes))
        return any(part in place for part in torch for place in places)
    if _is_final(error, texts):
        return False
    name = _missing_name(error)
    anywhere = not name or _ANYWHERE.match(name) or _OF_STD.search(error.message)
    return bool(anywhere) or occurs(name)


def _is_final(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Whether an error in the user's files is not about a name that is missing."""
    if _NO_ARGUMENTS.match(error.message):
        return True
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


def _missing_name(error: Diagnostic) -> str:
    """The one name that an error says is not declared; empty if it says something else."""
    found = (pattern.match(error.message) for pattern in _MISSING)
    return next((match["name"] for match in found if match), "")


def _place(error: Diagnostic, texts: Mapping[str, str]) -> tuple[str, int] | None:
    """The text that has an error, and the offset of its line and column."""
    named = re.compile(
        rf'^[ \t]*#[ \t]*line[ \t]+(\d+)[ \t]+"{re.escape(error.file)}"[^\n]*\n', re.MULTILINE
    )
    for path, text in texts.items():
        start, first = 0, 1
        if path != error.file:
            match = named.search(text)
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
