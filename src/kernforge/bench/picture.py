# SPDX-License-Identifier: Apache-2.0
"""A document of measurements as one picture: how long the others take beside the kernel.

A row is a workload. Its marks are the other candidates, at the ratio of their time to the kernel's
with its 95 % interval; right of the line at 1 the kernel is faster. The fastest other one is named:
who reads the picture compares with the best, not with the slowest. The file carries its own colours
for a light and a dark page, no script and no font.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kernforge.bench import text

_WIDTH, _LEFT, _RIGHT, _ROW, _HEAD, _FOOT = 860, 240, 190, 24, 62, 46
_LINE = 15
_LETTERS, _LABEL, _NOTE = 31, 28, 128
_AIR = 1.06  # beside the outermost mark
_LEAST_SPAN = 1.25  # the axis reaches at least from 1 / this to this
_APART = 44.0
# The roundest first; 1 is the kernel.
_ROUND = (
    *(1.0, 0.1, 10.0, 0.01, 100.0, 1000.0, 0.5, 2.0, 0.2, 5.0, 0.05, 20.0, 50.0, 0.8, 1.2, 1.5),
    *(0.7, 3.0, 0.3, 0.9, 1.1, 0.6, 0.4, 4.0, 0.95, 1.05, 1.3, 1.4, 7.0, 30.0, 0.98, 1.02),
)
_EXPLAINED = (
    "time of the others as a multiple of the kernel's, with its 95 % interval; right of 1 the kernel "
    "is faster; blue: the fastest other"
)
_STYLE = """\
svg{--ink:#1f2328;--soft:#59636e;--grid:#d1d9e0;--best:#0969da;--other:#8c959f;--page:#fff}
@media (prefers-color-scheme:dark){svg{--ink:#f0f6fc;--soft:#9198a1;--grid:#3d444d;--best:#4493f8;\
--other:#6e7681;--page:#0d1117}}
text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--ink)}
.soft{fill:var(--soft);font-size:12px}.title{font-size:15px;font-weight:600}
.page{fill:var(--page)}.grid{stroke:var(--grid)}.one{stroke:var(--ink);stroke-width:1.5}
.best{stroke:var(--best);fill:var(--best)}.other{stroke:var(--other);fill:var(--other)}
.span{stroke-width:2;fill:none}.unsure{fill:var(--page)}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A candidate beside the kernel.

    Attributes:
        value: its time by the kernel's; ``low`` and ``high`` are the ends of its 95 % interval.
        unsure: whether a time of the two is one that cannot be told.
    """

    name: str
    value: float
    low: float
    high: float
    unsure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A workload.

    Attributes:
        marks: the candidates with a ratio, the fastest first.
        missing: why there is no mark, where there is none.
    """

    name: str
    marks: tuple[Mark, ...]
    missing: str = ""


def rows(document: dict[str, Any], mode: str) -> list[Row]:
    """The workloads of a document in one mode."""
    return [_row(case, mode) for case in document["workloads"]]


def _row(case: dict[str, Any], mode: str) -> Row:
    here = [row for row in case["results"] if row["mode"] == mode]
    # Ratios are to the first candidate of all, which is the kernel.
    first = here[0] if here else {}
    marks = sorted(
        (mark for row in here[1:] if (mark := _mark(row, first))), key=lambda mark: mark.value
    )
    why = ""
    if not marks:
        reasons = [row.get("refused") or row.get("skipped") for row in here]
        why = next((str(reason) for reason in reasons if reason), "nothing to compare with")
    return Row(name=case["name"], marks=tuple(marks), missing=why)


def _mark(row: dict[str, Any], first: dict[str, Any]) -> Mark | None:
    """A candidate beside the kernel; None where either has no time."""
    if "median_ns" not in row or "median_ns" not in first:
        return None
    # Older documents have no ratio round by round: the widest that both intervals allow.
    ratio = row.get("beside") or {
        "value": row["median_ns"] / first["median_ns"],
        "low": row["low_ns"] / first["high_ns"],
        "high": row["high_ns"] / first["low_ns"],
    }
    if ratio["low"] <= 0:
        return None
    return Mark(
        name=row["candidate"],
        value=ratio["value"],
        low=ratio["low"],
        high=ratio["high"],
        unsure=bool(row.get("cannot_tell") or first.get("cannot_tell")),
    )


def svg(document: dict[str, Any], *, title: str) -> str:
    """The picture, one panel for each mode in which something was compared."""
    panels = [(mode, rows(document, mode)) for mode in document["settings"]["modes"]]
    panels = [(mode, found) for mode, found in panels if any(row.marks for row in found)]
    notes = text.conditions(document)
    top = _HEAD
    parts: list[str] = []
    for mode, found in panels:
        drawn, height = _panel(mode, found, top)
        parts += drawn
        top += height
    if not panels:
        parts.append(_text(_LEFT, top + 20, "there is no other candidate to compare with", "soft"))
        top += 40
    lines = [part for line in notes for part in textwrap.wrap(line, _NOTE)]
    parts += [
        _text(16, top + 6 + _LINE * number, line, "soft") for number, line in enumerate(lines)
    ]
    height = top + 14 + _LINE * len(lines)
    size = f'width="{_WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="page" {size}/>',
            _text(16, 26, title, "title"),
            _text(16, 46, _EXPLAINED, "soft"),
            *parts,
            "</svg>",
            "",
        ]
    )


def _panel(mode: str, found: Sequence[Row], top: int) -> tuple[list[str], int]:
    """The marks of a mode below ``top``, and the height of its panel."""
    ends = [v for row in found for mark in row.marks for v in (mark.low, mark.high)]
    low = min(*ends, 1 / _LEAST_SPAN) / _AIR
    high = max(*ends, _LEAST_SPAN) * _AIR
    right = _WIDTH - _RIGHT

    def at(value: float) -> float:
        share = math.log(value / low) / math.log(high / low)
        return round(_LEFT + share * (right - _LEFT), 1)

    first, last = top + 26, top + 26 + _ROW * len(found)
    explained = text.MODES.get(mode, "")
    parts = [_text(16, top + 12, f"{mode}: {explained}" if explained else mode, "soft")]
    for value in _ticks(low, high, at):
        kind = "one" if value == 1 else "grid"
        parts += [
            f'<line class="{kind}" x1="{at(value)}" x2="{at(value)}" y1="{first}" y2="{last}"/>',
            _text(at(value), last + 16, f"{value:.3g}x", "soft", anchor="middle"),
        ]
    for number, row in enumerate(found):
        parts += _drawn(row, first + _ROW * number + _ROW // 2, at, right)
    return parts, 26 + _ROW * len(found) + _FOOT - 10


def _ticks(low: float, high: float, at: Callable[[float], float]) -> list[float]:
    """Round values, of the roundest as many as have room; always 1."""
    chosen: list[float] = []
    for value in _ROUND:
        room = all(abs(at(value) - at(other)) >= _APART for other in chosen)
        if low <= value <= high and room:
            chosen.append(value)
    return sorted(chosen)


def _drawn(row: Row, y: int, at: Callable[[float], float], right: int) -> Iterator[str]:
    yield _text(_LEFT - 12, y + 4, _short(row.name, _LETTERS), "", anchor="end")
    if not row.marks:
        yield _text(right + 12, y + 4, _short(row.missing, _LABEL), "soft")
        return
    best = row.marks[0]
    for mark in reversed(row.marks):
        kind = "best" if mark is best else "other"
        size = 4.5 if mark is best else 3
        hollow = " unsure" if mark.unsure else ""
        told = f"{mark.name}: {mark.value:.3f} ({mark.low:.3f} .. {mark.high:.3f})"
        yield f'<path class="span {kind}" d="M{at(mark.low)} {y}H{at(mark.high)}"/>'
        yield (
            f'<circle class="{kind}{hollow}" cx="{at(mark.value)}" cy="{y}" r="{size}">'
            f"<title>{escape(told)}</title></circle>"
        )
    label = f"{best.value:.2f}x {best.name}" + (", cannot tell" if best.unsure else "")
    yield _text(right + 12, y + 4, _short(label, _LABEL), "soft")


def _text(x: float, y: float, words: str, kind: str, *, anchor: str = "start") -> str:
    styled = f' class="{kind}"' if kind else ""
    placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x}" y="{y}"{styled}{placed}>{escape(words)}</text>'


def _short(words: str, letters: int) -> str:
    return words if len(words) <= letters else words[: letters - 1] + "…"
