# SPDX-License-Identifier: Apache-2.0
"""Charts on logarithmic axes as SVG text: no script, no font, nothing from elsewhere.

Colours are classes (``c0`` ... ``c7``, ``roof``, ``grid``, ``axis``), so that the page around the
chart decides them for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

COLOURS = 8
_WIDTH, _HEIGHT = 760, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 190, 14, 52
_SHORTEST = 0.8  # decades
_SPARSE = 1.6  # decades below which 2 and 5 get a line too
_LETTERS = 24
_PLAIN = 'fill="none" stroke="currentColor"'  # for who draws without the page's style


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measurement; ``low`` and ``high`` are the ends of its interval in the unit of ``y``."""

    x: float
    y: float
    low: float
    high: float
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together.

    Attributes:
        name: what the legend calls it.
        points: in the order in which they are joined.
        colour: number of its class; None: a roof, dashed and without marks.
        joined: whether a line goes through the points.
    """

    name: str
    points: tuple[Point, ...]
    colour: int | None = None
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A plot of series, both axes logarithmic.

    Attributes:
        across: name of the x axis.
        up: name of the y axis.
        series: at least one with a point; all values above zero.
        write_x: a value of the x axis as text.
        write_y: a value of the y axis as text.
    """

    title: str
    across: str
    up: str
    series: tuple[Series, ...]
    write_x: Callable[[float], str]
    write_y: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class _Axis:
    """From values to places; ``low`` and ``high`` are powers of ten."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value."""
        share = (math.log10(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> Iterator[float]:
        """Values that get a line."""
        steps = (1, 2, 5) if self.high - self.low < _SPARSE else (1,)
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for step in steps:
                value = step * 10.0**power
                if self.low - 1e-9 <= math.log10(value) <= self.high + 1e-9:
                    yield value


def _axis(values: Sequence[float], start: float, end: float) -> _Axis:
    """An axis with a little air on both sides, never so short that noise fills it."""
    low, high = math.log10(min(values)), math.log10(max(values))
    air = max(0.06 * (high - low), (_SHORTEST - (high - low)) / 2)
    return _Axis(low - air, high + air, start, end)


def svg(chart: Chart) -> str:
    """The chart as an ``svg`` element."""
    points = [point for each in chart.series for point in each.points]
    x = _axis([p.x for p in points], _LEFT, _WIDTH - _RIGHT)
    y = _axis([v for p in points for v in (p.low, p.y, p.high)], _HEIGHT - _BOTTOM, _TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f"<title>{escape(chart.title)}</title>",
        *_grid(chart, x, y),
    ]
    for row, each in reversed([*enumerate(chart.series)]):  # the first one lies on top
        parts += _draw(chart, each, x, y)
        parts += _legend(each, row)
    return "\n".join([*parts, "</svg>"])


def _grid(chart: Chart, x: _Axis, y: _Axis) -> Iterator[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for value in x.ticks():
        at = f"{x.at(value):.1f}"
        yield f'<line class="grid" stroke="#999" x1="{at}" x2="{at}" y1="{_TOP}" y2="{bottom}"/>'
        yield f'<text x="{at}" y="{bottom + 18}" text-anchor="middle">{escape(chart.write_x(value))}</text>'
    for value in y.ticks():
        at = f"{y.at(value):.1f}"
        yield f'<line class="grid" stroke="#999" x1="{_LEFT}" x2="{right}" y1="{at}" y2="{at}"/>'
        yield f'<text x="{_LEFT - 8}" y="{at}" dy="4" text-anchor="end">{escape(chart.write_y(value))}</text>'
    yield f'<path class="axis" {_PLAIN} d="M{_LEFT} {_TOP}V{bottom}H{right}"/>'
    middle = (_LEFT + right) / 2
    yield f'<text x="{middle}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(chart.across)}</text>'
    yield (
        f'<text transform="rotate(-90)" x="{-(_TOP + bottom) / 2}" y="14" text-anchor="middle">'
        f"{escape(chart.up)}</text>"
    )


def _draw(chart: Chart, series: Series, x: _Axis, y: _Axis) -> Iterator[str]:
    name = _class(series)
    if series.joined and len(series.points) > 1:
        path = "L".join(f"{x.at(p.x):.1f} {y.at(p.y):.1f}" for p in series.points)
        yield f'<path class="line {name}" {_PLAIN} d="M{path}"/>'
    if series.colour is None:
        return
    for point in series.points:
        at, mark = x.at(point.x), y.at(point.y)
        yield (
            f'<path class="line {name}" {_PLAIN} d="M{at:.1f} {y.at(point.low):.1f}'
            f'V{y.at(point.high):.1f}"/>'
        )
        label = point.label or f"{chart.write_x(point.x)}: {chart.write_y(point.y)}"
        yield (
            f'<circle class="mark {name}" cx="{at:.1f}" cy="{mark:.1f}" r="3.5">'
            f"<title>{escape(series.name)}, {escape(label)}</title></circle>"
        )


def _legend(series: Series, row: int) -> Iterator[str]:
    left, at = _WIDTH - _RIGHT + 16, _TOP + 10 + 20 * row
    yield f'<path class="line {_class(series)}" {_PLAIN} d="M{left} {at}h22"/>'
    if series.colour is not None:
        yield f'<circle class="mark {_class(series)}" cx="{left + 11}" cy="{at}" r="3.5"/>'
    short = series.name if len(series.name) <= _LETTERS else series.name[: _LETTERS - 1] + "…"
    yield (
        f'<text x="{left + 30}" y="{at}" dy="4">{escape(short)}'
        f"<title>{escape(series.name)}</title></text>"
    )


def _class(series: Series) -> str:
    return "roof" if series.colour is None else f"c{series.colour % COLOURS}"


def bar(value: float, low: float, high: float, most: float, colour: int) -> str:
    """A small bar from zero with the interval as a whisker, on a linear scale up to ``most``."""
    width = 150.0

    def at(number: float) -> float:
        return round(width * min(number / most, 1.0), 1)

    return (
        f'<svg class="bar" viewBox="0 0 {width + 2:.0f} 14" width="{width + 2:.0f}" height="14">'
        f'<rect class="fill c{colour % COLOURS}" x="0" y="2" width="{at(value)}" height="10"/>'
        f'<path class="whisker" {_PLAIN} d="M{at(low)} 7H{at(high)}M{at(low)} 3v8M{at(high)} 3v8"/></svg>'
    )
