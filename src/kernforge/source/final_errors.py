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
    r"declared|undefined|defin|member|does not name|incomplete|ambiguous|must be a class"
    r"|no (?:instance|match|suitable|operator)|expected|cannot convert|unknown type"
)
_TWICE = re.compile(r"redefinition|already been defined|conflicting declaration")
# Names of torch and Python that macros put together, and names that any header of C++ may bring.
_ANYWHERE = re.compile(r"k[A-Z]|_?Py")
_OF_STD = re.compile(r"""["']std\b""")
# Only a keyword, as static_cast, must have <. A specialization of a template may be in a header
# that is missing, and so may an operator of a type that is not plain.
_FINAL = re.compile(
    r"""expected (?:a )?['"]<['"]|[^\s:]+: No such file"""
    r"""|(?!.*<)(?!namespace).* has no member|(?!.*<)no member named .* in '"""
    r"""|(?![\s\S]*\b(?:at|c10|torch|std)::)no (?:match for 'operator|operator ")"""
)
# GCC: expected ',' or ';' before 'auto'. Clang and nvcc name only what they expect.
_EXPECTED = re.compile(r"""expected (?:a )?['"][,;)\]]['"](?: or '[;)]')?(?: before '(\w+)')?""")
_MACRO = re.compile(r"\s*_*[A-Z][A-Z0-9_]+\b")
_BODY = re.compile(r"\)\s*(?:const\s*|noexcept\s*|mutable\s*)*(?:->[^;{}]*)?$")
_MISSING = re.compile(
    r"""['"](?P<a>\w+)['"] (?:was not declared|has not been declared|does not name|is undefined)"""
    r"|'(?P<b>\w+)' (?:is not a member of '|in (?:namespace|class|struct) '[^']*' does not name)"
    r"|(?:use of undeclared identifier|unknown type name) '(?P<c>\w+)'"
    r"|no (?:member|type|template) named '(?P<d>\w+)' in (?:the global )?namespace"
    r'|(?:identifier|namespace "[^"]*" has no (?:actual )?member) "(?P<e>\w+)"'
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
    if missing := _MISSING.match(error.message):
        name = next(filter(None, missing.groups()))
        anywhere = _ANYWHERE.match(name) or _OF_STD.search(error.message)
        return bool(anywhere) or occurs(name)
    return not _FINAL.match(error.message) and not _is_unfinished(error, texts)


def _is_unfinished(error: Diagnostic, texts: Mapping[str, str]) -> bool:
    """Whether a bracket or a semicolon is missing in the body of one of the user's functions.

    Outside of one, a macro whose header is missing looks like the declaration of a function.
    """
    expected = _EXPECTED.match(error.message)
    if expected is None:
        return False
    text = texts.get(error.file)
    if text is None:
        return False
    code = cpp_text.code(text)
    lines = code.splitlines(keepends=True)[: error.line - 1]
    offset = sum(map(len, lines)) + max(0, error.column - 1)
    return not _MACRO.match(expected[1] or code[offset:]) and _is_in_body(code[:offset])


def _is_in_body(code: str) -> bool:
    """Whether a text of code ends in the body of a function."""
    is_body: list[bool] = []
    for match in re.finditer(r"[{}]", code):
        if match[0] == "{":
            is_body.append(bool(_BODY.search(code[: match.start()].rstrip()[-300:])))
        elif is_body:
            is_body.pop()
    return any(is_body)
