# SPDX-License-Identifier: Apache-2.0
"""The tokens of a CUDA source, and where its brackets and templates end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from types import MappingProxyType
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<space>(?:[ \t\r\f\v]|\\\n)+) | (?P<newline>\n)
  | (?P<comment>//(?:\\\n|[^\n])*|/\*.*?\*/)
  | (?P<text>(?:u8|[uUL])?(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'))
  | (?P<word>[A-Za-z_]\w*) | (?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*) | (?P<mark>::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_DIRECTIVE = re.compile(r"\#(?:\\\n|/\*.*?\*/|//(?:\\\n|[^\n])*|[^\n])*", re.DOTALL)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
OPEN = MappingProxyType({"(": ")", "[": "]", "{": "}"})
CLOSE = frozenset(OPEN.values())


class Token(NamedTuple):
    """A piece of a source: ``space``, ``newline``, ``comment``, ``directive``, ``text``, ...."""

    kind: str
    text: str


class DoubtError(Exception):
    """The text is not what this reader understands."""


def macros(text: str) -> frozenset[str]:
    """Names that a text defines as macros."""
    return frozenset(_DEFINED.findall(text))


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text; joined, they are the text.

    Raises:
        DoubtError: some character does not begin a token.
    """
    position, fresh = 0, True
    while position < len(text):
        match = _DIRECTIVE.match(text, position) if fresh else None
        kind = "directive"
        if match is None:
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise DoubtError
            kind = match.lastgroup
        if kind not in {"space", "comment"}:
            fresh = kind == "newline"
        position = match.end()
        yield Token(kind, match[0])


def after_template(sequence: Sequence[Token], at: int) -> int:
    """The index after ``template <...>``, once or several times."""
    while (first := significant(sequence, at, 2)) and sequence[first[0]].text == "template":
        if len(first) < 2 or sequence[first[1]].text != "<":  # noqa: PLR2004
            return at  # an explicit instantiation
        at, depth = first[1], 0
        while at < len(sequence):
            text = sequence[at].text
            if text in {"(", "["}:
                at = closing(sequence, at)
            elif text in {"{", "}", ";"}:
                raise DoubtError
            depth += (text == "<") - (text == ">")
            at += 1
            if depth == 0:
                break
    return at


def closing(sequence: Sequence[Token], at: int) -> int:
    """Index of the token that closes the bracket at an index."""
    open_: list[str] = []
    for index in range(at, len(sequence)):
        token = sequence[index]
        if token.kind != "mark":
            continue
        if token.text in OPEN:
            open_.append(OPEN[token.text])
        elif token.text in CLOSE:
            if open_.pop() != token.text:
                raise DoubtError
            if not open_:
                return index
    raise DoubtError


def significant(sequence: Sequence[Token], at: int, count: int) -> list[int]:
    """Indices of the next tokens that are neither space nor comment."""
    indices: list[int] = []
    while at < len(sequence) and len(indices) < count:
        if sequence[at].kind not in {"space", "newline", "comment"}:
            indices.append(at)
        at += 1
    return indices
