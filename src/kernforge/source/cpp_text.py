# SPDX-License-Identifier: Apache-2.0
"""C++ text without its comments and literals, in which every line keeps its number."""

from __future__ import annotations

import re

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


def _blank(match: re.Match[str]) -> str:
    if match["linkage"]:
        return match[0]
    return "".join("\n" if letter == "\n" else " " for letter in match[0])
