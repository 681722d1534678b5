# SPDX-License-Identifier: Apache-2.0
"""What compilers complain of, as data, and the lines of source that they mean.

Read are the forms of GCC and Clang (``file:line:column: error: text``), of nvcc's front end
(``file(line): error #20: text``, then the line and a caret), of ptxas (``ptxas error : text``) and of
the linker (``undefined reference to``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_GCC = re.compile(
    r"(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?P<kind>fatal error|error|warning|note): (?P<text>.*)"
)
_NVCC = re.compile(
    r"(?P<file>[^\s(][^(\n]*)\((?P<line>\d+)\): "
    r"(?P<kind>catastrophic error|error|warning|remark|note)(?: #[\w-]+)?: (?P<text>.*)"
)
_PTXAS = re.compile(
    r"ptxas (?:(?P<file>\S+), line (?P<line>\d+); )?(?P<kind>fatal|error|warning) *: (?P<text>.*)"
)
_UNDEFINED = re.compile(r".*(?P<text>undefined reference to .*)")
_CARET = re.compile(r"\s*\^\s*")
_EXPANDED = re.compile(r"__attribute__\(\((\w+)\)\)")
_QUOTED = 2  # blanks before a line that nvcc's front end shows
_SEVERITIES = {"catastrophic error": "error", "fatal error": "error", "fatal": "error"}
_AROUND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One complaint.

    Attributes:
        file: as the compiler names it; empty when it names none.
        line: the first is 1; 0 when there is none.
        column: the first is 1; 0 when there is none.
        severity: ``error``, ``warning``, ``remark`` or ``note``.
        message: its text.
    """

    file: str
    line: int
    column: int
    severity: str
    message: str


def parse(output: str) -> tuple[Diagnostic, ...]:
    """The complaints in a compiler's output, each once, in its order.

    Notes follow what they belong to.
    """
    return tuple(dict.fromkeys(_parse(output.splitlines())))


def errors(found: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Those that stop a build, with their notes."""
    kept, belongs = [], False
    for one in found:
        belongs = one.severity == "error" or (one.severity == "note" and belongs)
        if belongs:
            kept.append(one)
    return tuple(kept)


def excerpt(
    diagnostic: Diagnostic, read: Callable[[str], str | None], *, around: int = _AROUND
) -> tuple[str, ...]:
    """The line that is meant, some around it, and a caret below its column.

    Args:
        diagnostic: the complaint.
        read: the text of a file by the name in the complaint; None: it cannot be shown.
        around: lines before and after.

    Returns:
        Lines with their numbers; empty when there is nothing to show.
    """
    text = read(diagnostic.file) if diagnostic.file and diagnostic.line else None
    lines = [] if text is None else text.splitlines()
    if not 1 <= diagnostic.line <= len(lines):
        return ()
    first = max(1, diagnostic.line - around)
    last = min(len(lines), diagnostic.line + around)
    width = len(str(last))
    shown = []
    for number in range(first, last + 1):
        mark = ">" if number == diagnostic.line else " "
        shown.append(f"{mark} {number:>{width}} | {lines[number - 1]}".rstrip())
        if number == diagnostic.line and diagnostic.column:
            before = lines[number - 1][: diagnostic.column - 1]
            # Tabs stay tabs, or the caret would stand elsewhere.
            blank = "".join("\t" if letter == "\t" else " " for letter in before)
            shown.append(f"  {'':{width}} | {blank}^")
    return tuple(shown)


def title(diagnostic: Diagnostic) -> str:
    """``file:line:column: error: text``."""
    place = [diagnostic.file] if diagnostic.file else []
    place += [str(n) for n in (diagnostic.line, diagnostic.column) if n]
    return ": ".join(
        [*([":".join(place)] if place else []), diagnostic.severity, diagnostic.message]
    )


def _parse(lines: Sequence[str]) -> Iterator[Diagnostic]:
    for number, line in enumerate(lines):
        if match := _GCC.match(line):
            yield _of(match, column=int(match["column"] or 0))
        elif match := _NVCC.match(line):
            yield _with_rest(_of(match), lines[number + 1 :])
        elif match := _PTXAS.match(line):
            yield _of(match)
        elif match := _UNDEFINED.match(line):
            yield Diagnostic(
                file="", line=0, column=0, severity="error", message=match["text"].strip()
            )


def _of(match: re.Match[str], *, column: int = 0) -> Diagnostic:
    kind = match["kind"]
    return Diagnostic(
        file=(match["file"] or "").removeprefix("./"),
        line=int(match["line"] or 0),
        column=column,
        severity=_SEVERITIES.get(kind, kind),
        message=match["text"].strip(),
    )


def _with_rest(one: Diagnostic, after: Sequence[str]) -> Diagnostic:
    """The rest of a message of nvcc's front end, and the column below which it puts a caret.

    Until an empty line come more of the message, the line of source behind two blanks, the caret,
    and where a template was instantiated. In the line, words such as ``__global__`` are expanded.
    """
    block: list[str] = []
    for line in after:
        if not line.strip() or _NVCC.match(line) or _GCC.match(line):
            break
        block.append(line)
    carets = [place for place, line in enumerate(block) if _CARET.fullmatch(line)]
    if not carets:
        return one
    at = carets[0]
    before = block[at - 1][: block[at].index("^")] if at else ""
    column = max(1, len(_EXPANDED.sub(r"__\1__", before)) - _QUOTED + 1)
    words = [line.strip() for line in (*block[: max(0, at - 1)], *block[at + 1 :])]
    return replace(one, column=column, message="\n".join((one.message, *words)))
