# SPDX-License-Identifier: Apache-2.0
"""What of a CUDA source the host compiler sees, and what the GPU runs.

A function marked ``__global__`` or ``__device__`` alone has a body that the host program does not hold.
Two texts that are alike but for such bodies make the same host code, so that the new device code can
take the place of the old one. Only what is recognised for certain is taken out of the host's part:
where this reader is in doubt a body counts for both, and a text that it cannot follow has no parts.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_CONDITION = re.compile(r"#\s*(?:if|el|endif)")
_PRAGMA = re.compile(r"#\s*pragma\s+(?:no)?unroll\b")
_DEFINE = re.compile(r"#\s*define\b")
# Raw texts, digraphs, trigraphs, odd white space: other spellings of what this reader goes by.
_STRANGE = re.compile(r"""\b(?:u8|[uUL])?R"|<%|%>|%:|\?\?[=/'()!<>-]|[\v\f\x1e]""")
# A host function with one of these changes when the lines above it move.
_LINES = re.compile(r"\b(?:assert|__LINE__|__COUNTER__|\w*source_location|__builtin_LINE)\b")
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
_CLASSES = {"class", "struct", "union", "enum"}
_ON_DEVICE = {"__device__", "__global__", "__constant__", "__managed__", "__shared__"}
_FOR_BOTH = {"using", "typedef", "template", "static_assert", *_CLASSES}
# Their bodies can be looked at by who calls them, on the host too.
_OPEN_BODIES = {"constexpr", "consteval", "auto", "decltype", "__host__"}
_MACRO_LIKE = re.compile(r"_*[A-Z][A-Z0-9_]+|__\w+")
_MARKS = {"__device__", "__global__", "__forceinline__", "__inline__", "__noinline__"}
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
# White space of the host's part, before it is known whether its lines count.
_SPACE, _LINE, _HIDDEN_LINE = "\v", "\x1e", "\f"


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a text.

    Attributes:
        host: what the host compiler makes its code of, comments and the bodies of device functions
            left out; equal texts make equal host code under equal flags.
        device: the text without what is the host's alone, line for line.
    """

    host: str
    device: str


class _Token(NamedTuple):
    kind: str
    text: str


class _DoubtError(Exception):
    """The text is not what this reader understands."""


@functools.lru_cache(maxsize=256)
def split(text: str, macros: frozenset[str] = frozenset(), *, exact: bool = False) -> Split | None:
    """Tell the parts of a CUDA source or header; None where that is not certain.

    Args:
        text: the source.
        macros: names that it or what it includes defines.
        exact: whether host code may depend on the numbers of its lines in ways that the text does
            not show.
    """
    if _STRANGE.search(text):
        return None
    try:
        reader = _Reader(list(_tokens(text)), macros)
        reader.read()
    except _DoubtError:
        return None
    host = "".join(reader.host)
    if exact or _LINES.search(host):
        host = re.sub(f"[{_LINE}{_HIDDEN_LINE}]", "\n", host).replace(_SPACE, " ")
    else:
        host = re.sub(
            f"[{_SPACE}{_LINE}]*{_LINE}[{_SPACE}{_LINE}]*", "\n", host.replace(_HIDDEN_LINE, "")
        )
        host = re.sub(f"{_SPACE}+", " ", host).strip()
    return Split(host, "".join(reader.device))


def macros(text: str) -> frozenset[str]:
    """Names that a text defines as macros."""
    return frozenset(_DEFINED.findall(text))


def words(text: str) -> frozenset[str]:
    """The identifiers of a text, those in its directives too; not those in comments and strings."""
    found: set[str] = set()
    for token in _tokens(text):
        if token.kind == "word":
            found.add(token.text)
        elif token.kind == "directive":
            found |= set(re.findall(r"[A-Za-z_]\w*", token.text))
    return frozenset(found)


def _tokens(text: str) -> Iterator[_Token]:
    position, fresh = 0, True
    while position < len(text):
        match = _DIRECTIVE.match(text, position) if fresh else None
        kind = "directive"
        if match is None:
            match = _TOKEN.match(text, position)
            if match is None or match.lastgroup is None:
                raise _DoubtError
            kind = match.lastgroup
        if kind not in {"space", "comment"}:
            fresh = kind == "newline"
        position = match.end()
        yield _Token(kind, match[0])


class _Reader:
    """Goes over the tokens once, and writes both parts."""

    def __init__(self, tokens: list[_Token], macros: frozenset[str]) -> None:
        if any(t.kind == "mark" and t.text in "\"'\\`" for t in tokens):
            raise _DoubtError
        self._tokens, self._macros, self._at = tokens, macros, 0
        self.host: list[str] = []
        self.device: list[str] = []

    def read(self) -> None:
        """Read the whole text."""
        depth = 0
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            if token.kind in {"space", "newline", "comment", "directive"} or token.text == ";":
                self._keep(self._at, self._at + 1)
            elif token.text == "}":
                depth -= 1
                if depth < 0:
                    raise _DoubtError
                self._keep(self._at, self._at + 1)
            elif block := self._block():
                depth += 1
                self._keep(self._at, block)
            else:
                self._item()
        if depth:
            raise _DoubtError

    # -- what is at namespace scope --------------------------------------------------------

    def _block(self) -> int:
        """The end of the opening of a namespace or of an ``extern "C"`` block; 0 if it is none."""
        first = self._significant(self._at, 1)[0]
        if self._tokens[first].text not in {"namespace", "inline", "extern"}:
            return 0
        at = self._at
        said: list[str] = []
        while at < len(self._tokens) and len(said) < 12:  # noqa: PLR2004 - nested namespaces
            token = self._tokens[at]
            if token.text == "{" and said[0] == "extern":
                return at + 1 if len(said) == 2 and said[1].startswith('"') else 0  # noqa: PLR2004
            if token.text == "{":
                return at + 1 if "namespace" in said[:2] else 0
            if token.kind == "directive" or token.text in {";", "=", "("}:
                return 0
            said += [token.text] if token.kind in {"word", "text"} else []
            at += 1
        return 0

    def _item(self) -> None:
        """One declaration or definition."""
        begin = self._at
        at = self._after_template(begin)
        head: list[str] = []
        called = False
        while at < len(self._tokens):
            token = self._tokens[at]
            if token.text == ";":
                self._declaration(begin, at + 1, head, function=called)
                return
            if token.text == "{":
                if called and not (_CLASSES | {"="}) & set(head):
                    self._function(begin, at, head)
                    return
                at = self._closing(at) + 1
                continue
            if token.text in _OPEN:
                called = called or token.text == "("
                at = self._closing(at) + 1
                continue
            if token.text in _CLOSE or (called and token.text == ":"):
                raise _DoubtError
            if token.kind in {"word", "mark"}:
                head.append(token.text)
            at += 1
        raise _DoubtError

    def _after_template(self, at: int) -> int:
        """The place after ``template <...>``, however many of them there are."""
        while (first := self._significant(at, 2)) and self._tokens[first[0]].text == "template":
            if len(first) < 2 or self._tokens[first[1]].text != "<":  # noqa: PLR2004
                return at  # an explicit instantiation
            at, depth = first[1], 0
            while at < len(self._tokens):
                text = self._tokens[at].text
                if text in {"(", "["}:
                    at = self._closing(at)
                elif text in {"{", "}", ";"}:
                    raise _DoubtError
                depth += (text == "<") - (text == ">")
                at += 1
                if depth == 0:
                    break
        return at

    def _declaration(self, begin: int, end: int, head: list[str], *, function: bool) -> None:
        first, marks = self._tokens[begin].text, set(head)
        value = {"const", "constexpr"} & marks and (not function or "=" in marks)
        device = first in _FOR_BOTH or bool(marks & (_ON_DEVICE | _CLASSES)) or bool(value)
        self._keep(begin, end, device=device)

    def _function(self, begin: int, brace: int, head: list[str]) -> None:
        end = self._closing(brace) + 1
        marks = set(head)
        if not marks & {"__global__", "__device__"}:
            self._keep(begin, end, device="__host__" in marks and "__device__" in marks)
            return
        directives = [t.text for t in self._tokens[brace:end] if t.kind == "directive"]
        hidden = all(_PRAGMA.match(text) for text in directives)
        if "__global__" not in marks:
            others = marks - _MARKS
            doubtful = others & (_OPEN_BODIES | self._macros)
            hidden = hidden and not doubtful and not any(map(_MACRO_LIKE.fullmatch, others))
        if not hidden:
            self._keep(begin, end)
            return
        self._keep(begin, brace + 1)
        self._keep(brace + 1, end - 1, host=False)
        self._keep(end - 1, end)

    # -- moving ----------------------------------------------------------------------------

    def _keep(self, begin: int, end: int, *, host: bool = True, device: bool = True) -> None:
        """Write tokens to the parts that have them; the others get their lines alone."""
        for token in self._tokens[begin:end]:
            lines = token.text.count("\n")
            if token.kind == "directive":
                self._check(token.text)
            if not host:
                self.host.append(_HIDDEN_LINE * lines)
            elif token.kind in {"space", "comment", "newline"}:
                self.host.append(_LINE * lines or _SPACE)
            else:
                self.host.append(token.text)
            self.device.append(token.text if device else "\n" * lines)
        self._at = end

    @staticmethod
    def _check(directive: str) -> None:
        """Refuse a macro that could open or close a block."""
        if _DEFINE.match(directive):
            bare = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', "", directive)
            if any(bare.count(a) != bare.count(b) for a, b in _OPEN.items()):
                raise _DoubtError

    def _closing(self, at: int) -> int:
        """Where a bracket is closed."""
        open_: list[str] = []
        for place in range(at, len(self._tokens)):
            token = self._tokens[place]
            if token.kind != "mark":
                continue
            if token.text in _OPEN:
                open_.append(_OPEN[token.text])
            elif token.text in _CLOSE:
                if open_.pop() != token.text:
                    raise _DoubtError
                if not open_:
                    return place
        raise _DoubtError

    def _significant(self, at: int, count: int) -> list[int]:
        """The places of the next tokens that are neither space nor comment."""
        found: list[int] = []
        while at < len(self._tokens) and len(found) < count:
            if self._tokens[at].kind not in {"space", "newline", "comment"}:
                found.append(at)
            at += 1
        return found
