# SPDX-License-Identifier: Apache-2.0
"""Split a CUDA source into what the host compiler sees and what the GPU runs.

The host program does not contain the body of a function marked ``__global__``, or ``__device__``
alone. Two texts that differ only in such bodies make the same host code, so that new device code
can replace the old one. Only what is recognised for certain is taken out of the host's part: a body
in doubt counts for both, and a text whose brackets cannot be followed is not split.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from kernforge.source import cpp_text

_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_DIRECTIVE = re.compile(r"^[ \t]*(#(?:\\\n|[^\n])*)", re.MULTILINE)
_DEFINE = re.compile(r"#\s*define\b")
_PRAGMA = re.compile(r"#\s*pragma\s+(?:no)?unroll\b")
_TORCH = re.compile(
    r"""^[ \t]*#\s*include\s*[<"](?:torch|ATen|c10|pybind11)/[^\n]*""", re.MULTILINE
)
_OF_TORCH = re.compile(
    r"\b(?:torch|at|c10|py|pybind11|caffe2)\s*::|\b(?:TORCH|AT|C10|PYBIND11)_\w+|\bTensor\b"
    r"|[<\"](?:torch|ATen|c10|pybind11|caffe2)/|\bTHC\w*|\bPyObject\b"
)
# A tenth of the time; its types that an edit uses are missed as torch's are, but for these.
_DRIVER = re.compile(r"^[ \t]*#\s*include\s*<cuda\.h>[^\n]*", re.MULTILINE)
_INTEGERS = "#include <stdint.h>"
# In the place of torch's headers: what the host calls is not called any more.
QUIET = "#pragma nv_diag_suppress 177"
# Raw texts, digraphs, trigraphs, odd white space: other spellings of what is looked for.
_STRANGE = re.compile(r"""\b(?:u8|[uUL])?R"|<%|%>|%:|\?\?[=/'()!<>-]|[\v\f\x1e]""")
# What is left of a literal that has no end.
_OPEN_LITERAL = re.compile(r"""[`"\\]|(?<!\w)'|'(?!\w)""")
# A host function with one of these changes when the lines above it move.
_LINES = re.compile(r"\b(?:assert|__LINE__|__COUNTER__|\w*source_location|__builtin_LINE)\b")
_MARK = re.compile(r"[;(){}\[\]]")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
# The words before a body, in which all brackets are empty.
_WORD = re.compile(r"[A-Za-z_]\w*")
_ACCESS = re.compile(r"\s*(?:public|protected|private)\s*:")
_TEMPLATE = re.compile(r"\s*template\s*<(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*>")
_NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b[^=]*|extern\s*)")
_FUNCTION = re.compile(
    r"[\w\s:,<>*&\[\]]*?\b(?P<name>operator\s*(?:\(\)|[^\s\w(]+|[\w:][\w\s:<>*&]*)|\w+(?:<[^()]*>)?)"
    r"\s*\(\)\s*(?:(?:const|noexcept|override|final|volatile|&&?)\s*(?:\(\)\s*)?)*"
)
# A brace that gives a member its value, before the body of a constructor.
_MEMBER_VALUE = re.compile(r"\)\s*:(?!:).*[\w>]\s*$", re.DOTALL)
_CLASSES = frozenset({"class", "struct", "union"})
# Callers, on the host too, can depend on the bodies of these.
_OPEN_BODIES = frozenset({"constexpr", "consteval", "auto", "decltype", "friend", "__host__"})
# What may stand before a body and has braces of its own.
_BRACED = frozenset({"requires", "try"})
_GPUS = frozenset({"__device__", "__global__"})
_MARKS = _GPUS | {"__forceinline__", "__inline__", "__noinline__"}
# Types of the toolkit that look like macros.
_TYPES = re.compile(r"__(?:half|nv_bfloat16|nv_fp8)\w*")
_MACRO_LIKE = re.compile(r"_*[A-Z][A-Z0-9_]+|__\w+")


@dataclass(frozen=True, slots=True)
class Split:
    """The parts of a text.

    Attributes:
        host: what the host compiler makes its code of, comments and the bodies of device functions
            left out; equal texts make equal host code under equal flags.
        shared: names of functions that are declared for the host, or for both, among other words.
        alone: names of the functions whose bodies were left out.
        device: the text, line by line, without torch's headers and functions that are certainly
            the host's alone. It does not compile where the GPU's code needs something of them.
    """

    host: str
    shared: frozenset[str]
    alone: frozenset[str]
    device: str


def is_raw(text: str) -> bool:
    """Whether a source uses nothing of torch outside its comments and strings."""
    return not _OF_TORCH.search(cpp_text.code(text))


def macros(text: str) -> frozenset[str]:
    """Names that a text defines as macros."""
    return frozenset(_DEFINED.findall(text))


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
    code = cpp_text.code(text)
    directives = [match.span(1) for match in _DIRECTIVE.finditer(code)]
    bare = _cut(code, directives, " ")
    pairs = _pairs(bare)
    unsure = _STRANGE.search(text) or _OPEN_LITERAL.search(bare.replace('extern "C"', "extern    "))
    if unsure or pairs is None or any(_opens(code[begin:end]) for begin, end in directives):
        return None
    reader = _Reader(bare, pairs, [(b, code[b:e]) for b, e in directives], macros, shared)
    reader.read(0, len(bare))
    host = _cut(text, reader.hidden)
    exact = exact or bool(_LINES.search(cpp_text.squeezed(host)))
    host = cpp_text.squeezed(_cut(text, reader.hidden, "\n") if exact else host, lines=exact)
    device = _TORCH.sub(QUIET, _cut(text, reader.hosts, "\n", directives))
    device = _DRIVER.sub(_INTEGERS, device)
    return Split(host, frozenset(reader.shared), frozenset(reader.alone), device)


def _opens(directive: str) -> bool:
    """Whether a directive defines a macro that could open or close a block."""
    unequal = any(directive.count(a) != directive.count(b) for a, b in _BRACKETS.items())
    return unequal and bool(_DEFINE.match(directive))


def _pairs(bare: str) -> dict[int, int] | None:
    """Where each bracket closes, by where it opens; None if they do not match."""
    pairs: dict[int, int] = {}
    open_: list[int] = []
    for match in _MARK.finditer(bare):
        if match[0] in _BRACKETS:
            open_.append(match.start())
        elif match[0] != ";":
            if not open_ or _BRACKETS[bare[open_[-1]]] != match[0]:
                return None
            pairs[open_.pop()] = match.start()
    return None if open_ else pairs


def _cut(
    text: str,
    ranges: Iterable[tuple[int, int]],
    keep: str = "",
    but: Iterable[tuple[int, int]] = (),
) -> str:
    """The text without some ranges, of which line ends, or blanks for all else, may stay.

    Args:
        keep: a line end or a blank.
        but: ranges in them that stay as they are.
    """
    parts, last = [], 0
    for begin, end in ranges:
        parts.append(text[last:begin])
        inside, at = "", begin
        for first, after in (each for each in but if begin <= each[0] < end):
            inside, at = f"{inside}{_blank(text[at:first], keep)}{text[first:after]}", after
        parts += [inside, _blank(text[at:end], keep)]
        last = end
    return "".join((*parts, text[last:]))


def _blank(text: str, keep: str) -> str:
    return "\n" * text.count("\n") if keep == "\n" else re.sub(r"[^\n]", keep, text) if keep else ""


def _without_prefix(head: str) -> str:
    """The words before a body, without an access specifier and ``template <...>``."""
    while prefix := _ACCESS.match(head) or _TEMPLATE.match(head):
        head = head[prefix.end() :]
    return head


@dataclass(slots=True)
class _Reader:
    """Walk over the items of a text.

    Attributes:
        bare: the text without comments, literals and directives.
        pairs: where brackets close.
        directives: with their places.
        hidden: ranges of bodies that the host does not see.
        hosts: ranges of functions that are the host's alone.
    """

    bare: str
    pairs: dict[int, int]
    directives: list[tuple[int, str]]
    macros: frozenset[str]
    known: frozenset[str]
    hidden: list[tuple[int, int]] = field(default_factory=list)
    hosts: list[tuple[int, int]] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)

    def read(self, begin: int, end: int, *, members: bool = False) -> None:
        """Read the items of a namespace, or the members of a class."""
        at, head = begin, ""
        while match := _MARK.search(self.bare, at, end):
            mark, place = match[0], match.start()
            head += self.bare[at:place]
            at = match.end() if mark == ";" else self.pairs[place] + 1
            own = _without_prefix(head) if mark in "{;" else ""
            words = frozenset(_WORD.findall(own))
            is_value = ("=" in own and "operator" not in words) or "enum" in words
            is_class = bool(words & _CLASSES) and not own.rstrip().endswith(")")
            ended = mark == ";"
            if mark == "{" and _NAMESPACE.fullmatch(own.replace('"C"', "")):
                self.read(place + 1, at - 1)
                ended = True
            elif mark == "{" and is_class and not is_value:
                self.read(place + 1, at - 1, members=True)
            elif "()" in own and not is_value and not (is_class or _MEMBER_VALUE.search(own)):
                self._function((begin, place, at), own, words, members=members)
                ended = True
            head = "" if ended else head + mark + _BRACKETS.get(mark, "")
            begin = at if ended else begin

    def _function(
        self, place: tuple[int, int, int], own: str, words: frozenset[str], *, members: bool
    ) -> None:
        """Note a function that is declared, or defined if there is a body.

        Args:
            place: where it begins, its body or the end of its declaration, and where it ends.
        """
        begin, brace, end = place
        begin += len(self.bare[begin:brace]) - len(self.bare[begin:brace].lstrip())
        if not words & _GPUS or "__host__" in words:
            self.shared |= words
        first = bisect.bisect(self.directives, (begin, ""))
        inside = self.directives[first : bisect.bisect(self.directives, (end, ""))]
        plain = all(at > brace and _PRAGMA.match(text) for at, text in inside)
        if self.bare[brace] == "{" and plain and self._hides(own, words, members=members):
            self.hidden.append((brace + 1, end - 1))
        elif not members and self._is_hosts_alone(words):
            self.hosts.append((begin, end))

    def _hides(self, own: str, words: frozenset[str], *, members: bool) -> bool:
        """Whether only the GPU sees the body of a function that has these words before it."""
        if not words & _GPUS or words & (_BRACED | _CLASSES) or "{" in own:
            return False
        if "__global__" in words:
            return own.rstrip().endswith(")")
        match = _FUNCTION.fullmatch(own.strip())
        others = {word for word in words - _MARKS if not _TYPES.fullmatch(word)}
        doubtful = words & self.macros or others & _OPEN_BODIES
        if (
            match is None
            or match["name"] in _MARKS
            or doubtful
            or any(map(_MACRO_LIKE.fullmatch, others))
        ):
            return False
        name = _WORD.findall(match["name"])[0]
        if not members and name in self.known:
            return False
        self.alone |= set() if members else {name}
        return True

    def _is_hosts_alone(self, words: frozenset[str]) -> bool:
        """Whether these words begin a function that no code of the GPU can call or look into."""
        unsure = {"using", "typedef"} | _GPUS | _OPEN_BODIES | self.macros
        named_by_macro = any(map(_MACRO_LIKE.fullmatch, words)) and len(words) > 1
        return not words & unsure and not named_by_macro
