# SPDX-License-Identifier: Apache-2.0
"""The one reader of C++ text: without its comments and literals, its brackets, its strings."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

CUDA_SUFFIXES = (".cu", ".cuh")
"""Suffixes of CUDA sources."""
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if(?:n?def)?|endif)\b", re.MULTILINE)
_COMMENT = r"//(?:\\\n|[^\n])*|/\*.*?\*/"
_LITERAL = r"""R"(?P<mark>[^\s()\\]{0,16})\((?P<raw>.*?)\)(?P=mark)"
    |(?P<kept>\bextern\s+"C"|^[ \t]*\#[ \t]*include[ \t]*"[^"\n]*")
    |"(?P<text>(?:[^"\\\n]|\\.)*)"
    |(?<!\w)'(?:[^'\\\n]|\\.)*'"""
_FLAGS = re.DOTALL | re.MULTILINE | re.VERBOSE
_QUIET = re.compile(f"{_COMMENT}|{_LITERAL}", _FLAGS)
_GAP = re.compile(rf"(?P<gap>(?:\s|{_COMMENT})+)|{_LITERAL}", _FLAGS)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@functools.lru_cache(maxsize=64)  # each rule about a project's sources asks for it
def code(text: str) -> str:
    """The text with blanks for comments and literals, except ``extern "C"`` and includes.

    Every character that is left has the offset that it had.
    """
    return _QUIET.sub(_blank, text)


def squeezed(text: str, *, lines: bool = False) -> str:
    """The text without comments, and with one blank or line end for all white space in a row.

    Args:
        lines: keep each line end.
    """

    def gap(match: re.Match[str]) -> str:
        if match["gap"] is None:
            return match[0]
        count = match[0].count("\n")
        return "\n" * (count if lines else min(count, 1)) or " "

    return _GAP.sub(gap, text).strip(" " if lines else None)


def literal(text: str) -> tuple[int, str] | None:
    """Offset and value of the adjacent strings that a text is; None where it is something else."""
    parts = [m for m in _QUIET.finditer(text) if m.group("text", "raw") != (None, None)]
    if not parts or code(text).strip():
        return None
    values = (
        _ESCAPE.sub(lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), match["text"])
        if match["raw"] is None
        else match["raw"]
        for match in parts
    )
    return parts[0].start(), "".join(values)


def quoted(text: str) -> str:
    """A string literal with this value."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def closing(code: str, start: int) -> int:
    """Position of the bracket that closes the one at ``start`` of a code; -1 if none does."""
    depth = 0
    for position in range(start, len(code)):
        depth += (code[position] in "([{") - (code[position] in ")]}")
        if not depth:
            return position
    return -1


def split(text: str) -> list[str]:
    """The parts of an argument list, split at commas outside brackets and literals."""
    listed = code(text)
    parts: list[str] = []
    depth = angle = last = 0
    for position, character in enumerate(listed):
        depth += (character in "([{") - (character in ")]}")
        if character == "<":
            angle += 1
        elif character == ">" and listed[position - 1] != "-":
            angle = max(0, angle - 1)
        elif character == "," and depth == 0 and angle == 0:
            parts.append(text[last:position].strip())
            last = position + 1
    return [*parts, text[last:].strip()]


def line_of(text: str, offset: int) -> int:
    """The line of an offset, counted from 1."""
    return text.count("\n", 0, offset) + 1


def unconditional(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Matches of a pattern, outside of comments and literals, that no ``#if`` may leave out."""
    for match in pattern.finditer(text):
        seen = code(text)  # most texts have no match, and are not read
        if seen[match.start() : match.end()].strip() and not is_conditional(seen, match.start()):
            yield match


def is_conditional(text: str, offset: int) -> bool:
    """Whether a place of a text without comments depends on an ``#if``."""
    directives = _CONDITION.findall(text, 0, offset)
    return len(directives) > 2 * directives.count("endif")


def _blank(match: re.Match[str]) -> str:
    if match["kept"]:
        return match[0]
    return "".join("\n" if letter == "\n" else " " for letter in match[0])
