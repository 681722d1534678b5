# SPDX-License-Identifier: Apache-2.0
"""C++ text without its comments and literals, in which every line keeps its number."""

from __future__ import annotations

import re
from collections.abc import Iterator

_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if(?:n?def)?|endif)\b", re.MULTILINE)
_QUIET = re.compile(
    r"""//[^\n]*|/\*.*?\*/
    |R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
    |(?P<linkage>\bextern\s+"C")
    |"(?:[^"\\\n]|\\.)*"
    |(?<!\w)'(?:[^'\\\n]|\\.)*'""",
    re.DOTALL | re.VERBOSE,
)


def code(text: str) -> str:
    """The text with blanks for comments and literals, except those of ``extern "C"``.

    Every character that is left has the offset that it had.
    """
    return _QUIET.sub(_blank, text)


def line_of(text: str, offset: int) -> int:
    """The line of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1


def unconditional(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches of a pattern, outside of comments and literals, that no ``#if`` may leave out."""
    seen = code(text)
    for match in pattern.finditer(text):
        if seen[match.start() : match.end()].strip() and not is_conditional(seen, match.start()):
            yield match


def is_conditional(text: str, offset: int) -> bool:
    """Whether an ``#if`` may leave out what is at an offset of a text without comments."""
    directives = _CONDITION.findall(text, 0, offset)
    return len(directives) > 2 * directives.count("endif")


def _blank(match: re.Match[str]) -> str:
    if match["linkage"]:
        return match[0]
    return "".join("\n" if letter == "\n" else " " for letter in match[0])
