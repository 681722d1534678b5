# SPDX-License-Identifier: Apache-2.0
"""What preprocessed C++ declares at namespace scope, and as macros, of given names.

A scan of text, not a parser: it follows braces, and takes a name that stands where one is declared.
It answers one question: does a second text of headers declare anything of these names that a first
does not? For that it is enough that both are read in the same way.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

_MARKER = re.compile(rb'^# \d+ "([^"\n]*)"[^\n]*\n', re.MULTILINE)
_STRUCTURE = re.compile(
    rb"""^[ \t]*\#[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[{}]""", re.MULTILINE
)
_NAMESPACE = re.compile(
    rb"(?:\bnamespace\b(?P<names>[^;{}()]*)|\bextern\s*\"C(?:\+\+)?\"|\benum\b[^;{}()]*)\s*$"
)
_NAME = re.compile(rb"[A-Za-z_]\w*")
_PART = re.compile(rb"\w")
_DEFINE = re.compile(rb"^#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_DIRECTIVE = re.compile(rb"^[ \t]*#[^\n]*", re.MULTILINE)
_ATTRIBUTES = frozenset({b"inline", b"__attribute__", b"visibility", b"hidden", b"default"})
_TYPE = re.compile(rb"\b(?:class|struct|union|enum|concept|namespace)\b[^;=(){}<>,]*$")
_AFTER = re.compile(rb"\s*(\(|;|=(?!=)|\{|\[|,|<|:(?!:)|$)")
# How much before a brace may say whose it is.
_BEFORE = 300
_ENUM = re.compile(rb"\benum\b[^;{}()]*$")


class Declared(NamedTuple):
    """A name that is declared.

    Attributes:
        namespace: the names of its namespaces, outermost first.
        kind: ``macro``, ``function``, ``definition`` of a type or alike, or ``name``.
    """

    namespace: tuple[str, ...]
    name: str
    kind: str


def without_files(text: bytes, is_excluded: Callable[[str], bool]) -> bytes:
    """A preprocessor's output without what comes from some files, and without line markers.

    Args:
        text: the output, with line markers.
        is_excluded: whether a file is left out, by its name in a marker.
    """
    markers = [*_MARKER.finditer(text)]
    ends = [match.start() for match in markers[1:]] + [len(text)]
    known: dict[bytes, bool] = {}
    kept = []
    for match, end in zip(markers, ends, strict=True):
        name = match[1]
        if name not in known:
            known[name] = is_excluded(name.decode(errors="replace"))
        if not known[name]:
            kept.append(text[match.end() : end])
    return b"".join(kept)


def occurs(text: bytes, name: str, is_excluded: Callable[[str], bool]) -> bool:
    """Whether a name occurs in a preprocessor's output, but for what comes from some files.

    Args:
        text: the output, with line markers.
        name: the name, as a whole word.
        is_excluded: whether a file does not count, by its name in a marker.
    """
    word, at = name.encode(), 0
    while (at := text.find(word, at)) >= 0:
        end = at + len(word)
        if not (_PART.match(text, at - 1) if at else None) and not _PART.match(text, end):
            marker = _MARKER.match(text, max(0, text.rfind(b"\n# ", 0, at) + 1))
            if marker is None or not is_excluded(marker[1].decode(errors="replace")):
                return True
        at = end
    return False


def declared(text: bytes, names: Collection[str]) -> Counter[Declared]:
    """How often a text declares each of some names: functions count for each overload, else once.

    Args:
        text: preprocessed C++, with the definitions of macros (``-dD``).
        names: what is looked for.
    """
    wanted = {name.encode() for name in names}
    found: Counter[Declared] = Counter()
    for match in _DEFINE.finditer(text):
        if match[1] in wanted:
            found[Declared((), match[1].decode(), "macro")] = 1
    if not wanted:
        return found
    word = re.compile(rb"\b(?:" + b"|".join(map(re.escape, sorted(wanted))) + rb")\b")
    for namespace, part, enum in _parts(text):
        for match in word.finditer(part):
            if kind := _kind(part, match, enum=enum):
                key = Declared(namespace, match[0].decode(), kind)
                found[key] = found[key] + 1 if kind == "function" else 1
    return found


def used_namespaces(text: bytes) -> set[str]:
    """Names of the namespaces whose names ``using namespace`` brings into others."""
    found = re.findall(rb"\busing\s+namespace\s+([\w:]+)", text)
    return {name.decode() for path in set(found) for name in path.split(b"::")}


def _kind(part: bytes, match: re.Match[bytes], *, enum: bool) -> str:
    """How a name is declared at its place; empty if it is only used there."""
    after = _AFTER.match(part, match.end())
    if not after:
        return ""
    sign = after[1]
    before = part[part.rfind(b";", 0, match.start()) + 1 : match.start()]
    if before.count(b"(") > before.count(b")"):
        return ""
    if b"template" in before and before.count(b"<") > before.count(b">"):
        return ""
    if _TYPE.search(before):
        return "name" if sign in {b";", b"<", b"="} else "definition"
    if sign == b"(":  # After :: it is a member that is defined.
        return "" if before.rstrip().endswith(b"::") or not before.strip() else "function"
    if sign in {b",", b"<", b":"}:
        return "name" if enum and sign == b"," else ""
    return "name" if before.strip() or enum else ""


def _parts(text: bytes) -> Iterator[tuple[tuple[str, ...], bytes, bool]]:
    """The text that is in no braces but those of namespaces and enumerations, in pieces.

    A piece ends where such a brace is opened or closed, or a body begins.

    Yields:
        The piece's namespaces, the piece, and whether it is of an enumeration.
    """
    stack: list[tuple[tuple[str, ...], bool]] = [((), False)]
    depth = start = 0  # depth: of braces that are not of a namespace
    held = b""  # what comes before braces inside of parentheses
    for match in _STRUCTURE.finditer(text):
        brace = match[0]
        if brace == b"{" and depth:
            depth += 1
        elif brace == b"{":
            piece = held + _DIRECTIVE.sub(b"", text[start : match.start()])
            statement = piece[piece.rfind(b";") + 1 :]
            opened = _NAMESPACE.search(piece[-_BEFORE:])
            depth, held = (0 if opened else 1), b""
            start = match.end()
            if statement.count(b"(") > statement.count(b")"):
                held = piece
                continue
            yield stack[-1][0], piece, stack[-1][1]
            if opened:
                names = _NAME.findall(opened["names"] or b"")
                inner = tuple(word.decode() for word in names if word not in _ATTRIBUTES)
                stack.append(((*stack[-1][0], *inner), bool(_ENUM.search(piece[-_BEFORE:]))))
        elif brace == b"}" and depth:
            depth -= 1
            start = match.end()
        elif brace == b"}":
            piece = held + _DIRECTIVE.sub(b"", text[start : match.start()])
            held, start = b"", match.end()
            yield stack[-1][0], piece, stack[-1][1]
            if len(stack) > 1:
                stack.pop()
    if not depth:
        yield stack[-1][0], held + _DIRECTIVE.sub(b"", text[start:]), stack[-1][1]
