# SPDX-License-Identifier: Apache-2.0
"""A function that has C linkage on one side and C++ linkage on the other.

C++ writes the types of the arguments into a function's name for the linker, and ``extern "C"`` does
not. A launcher that one file defines with it and another declares without is two functions: the
module links, because it may take symbols from the process, and cannot be loaded.

The linker says which function is undefined, so that only functions that are really missing are
looked for: a text alone does not say it, as a definition takes the linkage of a declaration before
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernforge.source import cpp_text

_EXTERN_C = re.compile(r'\bextern\s+"C"\s*(?P<block>\{)?')
# What may stand between the arguments of a function and its body or the end of its declaration.
_AFTER = re.compile(
    r"\s*(?:(?:noexcept|const|__attribute__\s*\(\(.*?\)\))\s*)*(?P<end>[;{])", re.DOTALL
)
_STATEMENT = re.compile(r"[;{}]|^[ \t]*#[^\n]*$", re.MULTILINE)
# Words before a name that make it a call and not a declaration.
_NOT_A_TYPE = re.compile(r"\b(?:return|throw|new|delete|else|do|case|goto|co_\w+)\b|[=(!?+/|.]|->")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A declaration or definition of a function.

    Attributes:
        line: its line, counted from 1.
        c: whether it has C linkage.
        defines: whether it is the definition.
    """

    path: str
    line: int
    c: bool
    defines: bool

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSidedLinkage:
    """A function that is undefined because ``extern "C"`` stands on one side only.

    Attributes:
        declaration: where it is declared with the other linkage.
    """

    name: str
    definition: Place
    declaration: Place

    @property
    def message(self) -> str:
        """What is wrong, at the line to change."""
        has, lacks = ("with", "without") if self.definition.c else ("without", "with")
        return (
            f'{self.declaration.where}: {self.name} is declared {lacks} extern "C", and '
            f'{self.definition.where} defines it {has} extern "C": for the linker these are two '
            "functions, and the one that is called is not defined"
        )

    @property
    def hint(self) -> str:
        """What to change."""
        with_c, without = self.definition, self.declaration
        if not with_c.c:
            with_c, without = without, with_c
        return (
            f'write extern "C" before {self.name} in {without.where} too, or remove it in '
            f"{with_c.where}; a header that both files include keeps them equal"
        )


def bare_name(function: str) -> str:
    """The last part of a function's name, as C++ writes the function."""
    return function.partition("(")[0].rpartition("::")[2].rpartition(" ")[2].partition("<")[0]


def one_sided(undefined: Iterable[str], texts: Mapping[str, str]) -> tuple[OneSidedLinkage, ...]:
    """The undefined functions of which the sources have both linkages.

    Args:
        undefined: undefined symbols of a shared object, as C++ writes them where they are C++ names:
            ``launch(float*, int)``, or ``launch`` for C's.
        texts: the sources and headers by path, those of the project alone.
    """
    code = {path: cpp_text.code(text) for path, text in texts.items()}
    found = (_one_sided(symbol, code) for symbol in undefined)
    return tuple(each for each in found if each)


def _one_sided(symbol: str, code: Mapping[str, str]) -> OneSidedLinkage | None:
    called_as_c = "(" not in symbol
    name = symbol.partition("(")[0].rpartition("::")[2]
    if not re.fullmatch(r"\w+", name):
        return None
    places = [
        place for path, text in code.items() if name in text for place in _places(path, text, name)
    ]
    definitions = [place for place in places if place.defines and place.c is not called_as_c]
    declarations = [place for place in places if not place.defines and place.c is called_as_c]
    if not definitions or not declarations:
        return None
    return OneSidedLinkage(name=name, definition=definitions[0], declaration=declarations[0])


def _places(path: str, code: str, name: str) -> Iterator[Place]:
    blocks = [*_c_blocks(code)]
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", code):
        end = _closing(code, match.end() - 1, "()")
        after = _AFTER.match(code, end + 1) if end else None
        starts = [m.end() for m in _STATEMENT.finditer(code, 0, match.start())]
        before = code[starts[-1] if starts else 0 : match.start()]
        type_words = _EXTERN_C.sub("", before).strip()
        if after is None or not type_words or _NOT_A_TYPE.search(type_words):
            continue
        in_block = any(first < match.start() < last for first, last in blocks)
        yield Place(
            path=path,
            line=cpp_text.line_of(code, match.start()),
            c=in_block or bool(_EXTERN_C.search(before)),
            defines=after["end"] == "{",
        )


def _c_blocks(code: str) -> Iterator[tuple[int, int]]:
    for match in _EXTERN_C.finditer(code):
        if match["block"]:
            yield match.start(), _closing(code, match.end() - 1, "{}") or len(code)


def _closing(code: str, opening: int, pair: str) -> int:
    """Offset of the bracket that closes one; 0 if there is none."""
    depth = 0
    for offset in range(opening, len(code)):
        depth += (code[offset] == pair[0]) - (code[offset] == pair[1])
        if depth == 0:
            return offset
    return 0
