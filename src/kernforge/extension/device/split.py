# SPDX-License-Identifier: Apache-2.0
"""Split a CUDA source into what the host compiler sees and what the GPU runs.

The host program does not contain the body of a function marked ``__global__``, or ``__device__``
alone. Two texts that differ only in such bodies make the same host code, so that new device code
can replace the old one. Only what is recognised for certain is taken out of the host's part: a body
in doubt counts for both, and a text that this reader cannot follow is not split.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernforge.extension.device.tokens import (
    CLOSE,
    OPEN,
    DoubtError,
    Token,
    after_template,
    closing,
    significant,
    tokens,
)

_PRAGMA = re.compile(r"#\s*pragma\s+(?:no)?unroll\b")
_DEFINE = re.compile(r"#\s*define\b")
# Raw texts, digraphs, trigraphs, odd white space: other spellings of what this reader goes by.
_STRANGE = re.compile(r"""\b(?:u8|[uUL])?R"|<%|%>|%:|\?\?[=/'()!<>-]|[\v\f\x1e]""")
# A host function with one of these changes when the lines above it move.
_LINES = re.compile(r"\b(?:assert|__LINE__|__COUNTER__|\w*source_location|__builtin_LINE)\b")
_CLASSES = frozenset({"class", "struct", "union", "enum"})
# Callers, on the host too, can depend on the bodies of these.
_OPEN_BODIES = frozenset({"constexpr", "consteval", "auto", "decltype", "friend", "__host__"})
# What may stand before a body and has braces of its own.
_BRACED = frozenset({"requires", "try"})
# Types of the toolkit that look like macros.
_TYPES = re.compile(r"__(?:half|nv_bfloat16|nv_fp8)\w*")
# Brackets after these are not a list of parameters.
_QUIET = frozenset({"alignas", "__align__", "__attribute__"})
_ACCESS = frozenset({"public", "protected", "private"})
_MACRO_LIKE = re.compile(r"_*[A-Z][A-Z0-9_]+|__\w+")
_TORCH = re.compile(r"""#\s*include\s*[<"](?:torch|ATen|c10|pybind11)/""")
# In the place of torch's headers: what the host calls is not called any more.
QUIET = "#pragma nv_diag_suppress 177"
_MARKS = frozenset({"__device__", "__global__", "__forceinline__", "__inline__", "__noinline__"})
# White space of the host's part, before it is known whether its lines count.
_SPACE, _LINE, _HIDDEN_LINE = "\v", "\x1e", "\f"


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a text.

    Attributes:
        host: what the host compiler makes its code of, comments and the bodies of device functions
            left out; equal texts make equal host code under equal flags.
        shared: names of functions that are declared for the host, or for both.
        alone: names of the functions whose bodies were left out.
        device: the text, line by line, without torch's headers and functions that are certainly
            the host's alone. It does not compile where the GPU's code needs something of them.
    """

    host: str
    shared: frozenset[str]
    alone: frozenset[str]
    device: str


def split(
    text: str,
    macros: frozenset[str] = frozenset(),
    shared: frozenset[str] = frozenset(),
    *,
    exact: bool = False,
) -> Split | None:
    """Split a CUDA source or header; None where that is not certain.

    Args:
        macros: names that it or what it includes defines.
        shared: names of functions that the host may have, however they are defined here.
        exact: whether host code may depend on the numbers of its lines in ways that the text does
            not show.
    """
    if _STRANGE.search(text):
        return None
    try:
        reader = _Reader(list(tokens(text)), macros, shared)
        reader.read()
    except DoubtError:
        return None
    host = "".join(reader.host)
    if exact or _LINES.search(host):
        host = re.sub(f"[{_LINE}{_HIDDEN_LINE}]", "\n", host).replace(_SPACE, " ")
    else:
        host = re.sub(
            f"[{_SPACE}{_LINE}]*{_LINE}[{_SPACE}{_LINE}]*", "\n", host.replace(_HIDDEN_LINE, "")
        )
        host = re.sub(f"{_SPACE}+", " ", host).strip()
    return Split(host, frozenset(reader.shared), frozenset(reader.alone), "".join(reader.device))


class _Reader:
    """Goes over the tokens once, and writes the host's part."""

    def __init__(
        self, sequence: list[Token], macros: frozenset[str], shared: frozenset[str]
    ) -> None:
        if any(t.kind == "mark" and t.text in "\"'\\`" for t in sequence):
            raise DoubtError
        self._tokens, self._macros, self._at = sequence, macros, 0
        self._known = shared
        self._hidden: set[int] = set()
        self.shared: set[str] = set()
        self.alone: set[str] = set()
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
                    raise DoubtError
                self._keep(self._at, self._at + 1)
            elif block := self._block():
                depth += 1
                self._keep(self._at, block)
            else:
                self._item()
        if depth:
            raise DoubtError

    # -- what is at namespace scope --------------------------------------------------------

    def _block(self) -> int:
        """Index after the brace that opens a namespace or ``extern "C"`` block; 0 without one."""
        first = significant(self._tokens, self._at, 1)[0]
        if self._tokens[first].text not in {"namespace", "inline", "extern"}:
            return 0
        at = self._at
        words: list[str] = []
        while at < len(self._tokens) and len(words) < 12:  # noqa: PLR2004 - nested namespaces
            token = self._tokens[at]
            if token.text == "{" and words[0] == "extern":
                return at + 1 if len(words) == 2 and words[1].startswith('"') else 0  # noqa: PLR2004
            if token.text == "{":
                return at + 1 if "namespace" in words[:2] else 0
            if token.kind == "directive" or token.text in {";", "=", "("}:
                return 0
            words += [token.text] if token.kind in {"word", "text"} else []
            at += 1
        return 0

    def _item(self) -> None:
        """One declaration or definition."""
        begin = self._at
        at = after_template(self._tokens, begin)
        head: list[str] = []
        names: set[str] = set()
        while at < len(self._tokens):
            token = self._tokens[at]
            called = bool(names)
            if token.text == ";":
                self._declaration(begin, at + 1, head, names)
                return
            if token.text == "{":
                if called and not _CLASSES & set(head) and not _assigned(head):
                    self._function(begin, at, head, names)
                    return
                at = (closing(self._tokens, at) if called else self._braced(at, head)) + 1
                continue
            if token.text in OPEN:
                names |= _named(head) if token.text == "(" else set()
                at = closing(self._tokens, at) + 1
                continue
            if token.text in CLOSE or (called and token.text == ":" and not _assigned(head)):
                raise DoubtError
            if token.kind in {"word", "mark"}:
                head.append(token.text)
            at += 1
        raise DoubtError

    def _declaration(self, begin: int, end: int, head: list[str], names: set[str]) -> None:
        self.shared |= _for_host(set(head), names)
        self._keep(begin, end, device=not self._is_hosts_alone(head, names))

    def _function(self, begin: int, brace: int, head: list[str], names: set[str]) -> None:
        end = closing(self._tokens, brace) + 1
        marks = set(head)
        self.shared |= _for_host(marks, names)
        if not marks & {"__global__", "__device__"}:
            self._keep(begin, end, device=not self._is_hosts_alone(head, names))
            return
        kernel = "__global__" in marks
        if not self._hides(begin, brace, marks) or (not kernel and names & self._known):
            self._keep(begin, end)
            return
        self.alone |= set() if kernel else names
        self._keep(begin, brace + 1)
        self._keep(brace + 1, end - 1, host=False)
        self._keep(end - 1, end)

    def _is_hosts_alone(self, head: list[str], names: set[str]) -> bool:
        """Whether these words begin a function that no code of the GPU can call or look into."""
        marks = set(head)
        unsure = {"__global__", "__device__", "using", "typedef"} | _OPEN_BODIES | self._macros
        named_by_macro = any(map(_MACRO_LIKE.fullmatch, marks)) and len(head) > 1
        return bool(names) and not marks & unsure and not named_by_macro and not _assigned(head)

    def _hides(self, begin: int, brace: int, marks: set[str]) -> bool:
        """Whether only the GPU sees the body of a function that has these words before it."""
        directives = [
            (place, token.text)
            for place, token in enumerate(self._tokens[begin : closing(self._tokens, brace)], begin)
            if token.kind == "directive"
        ]
        plain = all(place > brace and _PRAGMA.match(text) for place, text in directives)
        if not plain or marks & _BRACED:
            return False
        if "__global__" in marks:
            return True
        others = {word for word in marks - _MARKS if not _TYPES.fullmatch(word)}
        doubtful = marks & self._macros or others & _OPEN_BODIES
        return not doubtful and not any(map(_MACRO_LIKE.fullmatch, others))

    # -- classes ---------------------------------------------------------------------------

    def _braced(self, brace: int, head: list[str]) -> int:
        """Where braces close that are not a function's; of a class, device functions are noted."""
        end = closing(self._tokens, brace)
        if "enum" in head or _assigned(head) or not _CLASSES & set(head):
            return end
        before = self._hidden, self.shared
        self._hidden, self.shared = set(self._hidden), set(self.shared)
        try:
            self._members(brace + 1, end)
        except DoubtError:  # all of it is for both
            words = {token.text for token in self._tokens[brace:end] if token.kind == "word"}
            self._hidden, self.shared = before[0], before[1] | words
        return end

    def _members(self, at: int, end: int) -> None:
        while at < end:
            token = self._tokens[at]
            if token.kind in {"space", "newline", "comment", "directive"} or token.text == ";":
                at += 1
            else:
                at = self._member(at, end)

    def _member(self, begin: int, end: int) -> int:
        """The index after one member."""
        at = after_template(self._tokens, begin)
        head: list[str] = []
        names: set[str] = set()
        while at < end:
            token = self._tokens[at]
            if token.text == ";":
                if not {"default", "delete"} & set(head):
                    self.shared |= _for_host(set(head), names)
                return at + 1
            if token.text == "{":
                if names:
                    return self._method(begin, at, head) + 1
                at = self._braced(at, head) + 1
                continue
            if token.text in OPEN:
                names |= _named(head) if token.text == "(" else set()
                at = closing(self._tokens, at) + 1
                continue
            if token.text == ":" and names and not _assigned(head):
                return self._constructor(at, head) + 1
            if token.text == ":" and len(head) == 1 and head[0] in _ACCESS:
                return at + 1
            if token.kind in {"word", "mark"}:
                head.append(token.text)
            at += 1
        raise DoubtError

    def _method(self, begin: int, brace: int, head: list[str]) -> int:
        """Where the body of a member function closes."""
        marks = set(head)
        if _assigned(head):
            raise DoubtError
        end = closing(self._tokens, brace)
        if "__device__" in marks and self._hides(begin, brace, marks):
            self._hidden.update(range(brace + 1, end))
        return end

    def _constructor(self, at: int, head: list[str]) -> int:
        """Where a constructor's body closes, after the values that it gives to members."""
        if "try" in head:
            raise DoubtError
        while self._tokens[at].text != "{":
            at += 1
            while self._tokens[at].text not in {"(", "{"}:
                if self._tokens[at].text in {";", *CLOSE}:
                    raise DoubtError
                at += 1
            after = significant(self._tokens, closing(self._tokens, at) + 1, 1)
            if not after or self._tokens[after[0]].text not in {",", "{"}:
                raise DoubtError
            at = after[0]
        return closing(self._tokens, at)

    # -- moving ----------------------------------------------------------------------------

    def _keep(self, begin: int, end: int, *, host: bool = True, device: bool = True) -> None:
        """Write tokens to both parts, or their lines alone."""
        for place, token in enumerate(self._tokens[begin:end], begin):
            lines = token.text.count("\n")
            if token.kind == "directive":
                self._check(token.text)
                self.device.append(QUIET if _TORCH.match(token.text) else token.text)
            else:
                self.device.append(token.text if device else "\n" * lines)
            if not host or place in self._hidden:
                self.host.append(_HIDDEN_LINE * lines)
            elif token.kind in {"space", "comment", "newline"}:
                self.host.append(_LINE * lines or _SPACE)
            else:
                self.host.append(token.text)
        self._at = end

    @staticmethod
    def _check(directive: str) -> None:
        """Refuse a macro that could open or close a block."""
        if _DEFINE.match(directive):
            bare = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])+\'', "", directive)
            if any(bare.count(a) != bare.count(b) for a, b in OPEN.items()):
                raise DoubtError


def _assigned(head: list[str]) -> bool:
    """Whether what follows may be a value."""
    return "=" in head and "operator" not in head


def _named(head: list[str]) -> set[str]:
    """The name before a list of parameters; nothing for brackets of another kind."""
    if "operator" in head:
        return {"operator"}
    place, depth = len(head) - 1, 0
    while place > 0 and (depth or head[place] == ">"):
        depth += (head[place] == ">") - (head[place] == "<")
        place -= 1
    return set(head[place : place + 1]) - _QUIET or ({"("} if not head else set())


def _for_host(marks: set[str], names: set[str]) -> set[str]:
    """The names of a function if the host has it, or may."""
    return set() if marks & {"__device__", "__global__"} and "__host__" not in marks else names
