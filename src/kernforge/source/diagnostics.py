# SPDX-License-Identifier: Apache-2.0
"""Messages of compilers as values, and the lines of source that they refer to.

The forms are those of GCC and Clang (``file:line:column: error: text``), of nvcc's front end
(``file(line): error #20: text``, then the line and a caret), of ptxas (``ptxas error : text``) and
of the linker (``undefined reference to``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

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
_AROUND = 2  # lines that are shown before and after the one of a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One message of a compiler.

    Attributes:
        file: name of the file, as the compiler writes it; empty if the message names none.
        line: number of the line, from 1; 0 if the message names none.
        column: number of the column, from 1; 0 if the message names none.
    """

    file: str
    line: int
    column: int
    severity: str
    message: str


def parse(output: str) -> tuple[Diagnostic, ...]:
    """The messages in a compiler's output, in its order, without repetitions.

    A note follows the message that it belongs to.
    """
    return tuple(dict.fromkeys(_parse(output.splitlines())))


def errors(diagnostics: Sequence[Diagnostic]) -> tuple[Diagnostic, ...]:
    """The messages that stop a build, with their notes."""
    errors_and_notes, belongs = [], False
    for diagnostic in diagnostics:
        belongs = diagnostic.severity == "error" or (diagnostic.severity == "note" and belongs)
        if belongs:
            errors_and_notes.append(diagnostic)
    return tuple(errors_and_notes)


def excerpt(diagnostic: Diagnostic, read: Callable[[str], str | None]) -> tuple[str, ...]:
    """The line of a message with the lines around it, and a caret below its column.

    Args:
        read: gives the text of a file by its name in the message; None if it cannot be read.

    Returns:
        Lines with their numbers; empty if there is nothing to show.
    """
    lines = ((read(diagnostic.file) if diagnostic.file else None) or "").splitlines()
    if not 1 <= diagnostic.line <= len(lines):
        return ()
    first, last = max(1, diagnostic.line - _AROUND), min(len(lines), diagnostic.line + _AROUND)
    width = len(str(last))
    shown = []
    for number in range(first, last + 1):
        line, is_meant = lines[number - 1], number == diagnostic.line
        shown.append(f"{'>' if is_meant else ' '} {number:>{width}} | {line}".rstrip())
        if is_meant and diagnostic.column:
            # Tabs stay tabs, or the caret would be in another column.
            blank = re.sub(r"[^\t]", " ", line[: diagnostic.column - 1])
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
            yield _diagnostic(match, column=int(match["column"] or 0))
        elif match := _NVCC.match(line):
            yield _with_rest(_diagnostic(match), lines[number + 1 :])
        elif match := _PTXAS.match(line):
            yield _diagnostic(match)
        elif match := _UNDEFINED.match(line):
            yield Diagnostic(
                file="", line=0, column=0, severity="error", message=match["text"].strip()
            )


def _diagnostic(match: re.Match[str], *, column: int = 0) -> Diagnostic:
    kind = match["kind"]
    return Diagnostic(
        file=(match["file"] or "").removeprefix("./"),
        line=int(match["line"] or 0),
        column=column,
        severity=_SEVERITIES.get(kind, kind),
        message=match["text"].strip(),
    )


def _with_rest(diagnostic: Diagnostic, after: Sequence[str]) -> Diagnostic:
    """Add the rest of a message of nvcc's front end, and the column of its caret.

    More of the message, the line of source after two blanks, the caret, and where a template was
    instantiated follow until an empty line. Macros such as ``__global__`` are expanded in the line.
    """
    block: list[str] = []
    for line in after:
        if not line.strip() or _NVCC.match(line) or _GCC.match(line):
            break
        block.append(line)
    carets = [place for place, line in enumerate(block) if _CARET.fullmatch(line)]
    if not carets:
        return diagnostic
    at = carets[0]
    before = block[at - 1][: block[at].index("^")] if at else ""
    column = max(1, len(_EXPANDED.sub(r"__\1__", before)) - _QUOTED + 1)
    words = [line.strip() for line in (*block[: max(0, at - 1)], *block[at + 1 :])]
    return replace(diagnostic, column=column, message="\n".join((diagnostic.message, *words)))
