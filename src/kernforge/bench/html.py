# SPDX-License-Identifier: Apache-2.0
"""A document of measurements as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from kernforge.bench import text
from kernforge.bench.svg import COLOURS, Chart, Point, Series, bar, svg

_FEW = 6  # Workloads whose tables are open from the start.
_LIGHT = ("#2563c9", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be185d", "#4d5a6b")
_DARK = ("#7ab0ff", "#ff9a62", "#5fd38a", "#cf9bff", "#f2bd52", "#4fd0e4", "#ff86b8", "#aab6c6")
_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --ground: #ffffff;
  --line: #dde2e9; --bad: #b42318; --good: #15803d; LIGHT }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b6; --ground: #12161c;
  --line: #2b333e; --bad: #ff8f85; --good: #5fd38a; DARK } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; margin-bottom: .3rem; }
p, figcaption { color: var(--soft); max-width: 46rem; } figure { margin: 1rem 0; }
svg { width: 100%; height: auto; } svg.bar { width: 152px; height: 14px; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); fill: none; }
.line { fill: none; stroke-width: 1.8; } .roof { stroke: var(--soft); stroke-dasharray: 6 4; }
.whisker { stroke: var(--ink); fill: none; } .fill { opacity: .75; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: .4rem 0 1rem; }
th, td { text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.n, th.n { text-align: right; white-space: nowrap; } .bad { color: var(--bad); }
.good { color: var(--good); } details { margin: .6rem 0; } summary { cursor: pointer; }
.scroll { overflow-x: auto; }
"""


def html(document: dict[str, Any], before: dict[str, Any] | None = None) -> str:
    """The page.

    Args:
        before: an earlier document of the same machine to compare with.
    """
    colours = _colours(document)
    title = f"{document.get('project') or 'A kernel'}, measured"
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<title>{escape(title)}</title><style>{_style()}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *_machine(document),
        *_charts(document, colours),
        *(_compared(document, before) if before else ()),
        *_tables(document, colours),
        *_reading(document),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _style() -> str:
    light, dark = (
        " ".join(f"--c{number}: {colour};" for number, colour in enumerate(colours))
        for colours in (_LIGHT, _DARK)
    )
    classes = "\n".join(
        f".c{n} {{ stroke: var(--c{n}); }} .mark.c{n}, .fill.c{n} {{ fill: var(--c{n}); }}"
        for n in range(COLOURS)
    )
    return _STYLE.replace("LIGHT", light).replace("DARK", dark) + classes


def _colours(document: dict[str, Any]) -> dict[str, int]:
    """A colour of its own for each candidate, in the order in which they first appear."""
    names = dict.fromkeys(
        row["candidate"] for case in document["workloads"] for row in case["results"]
    )
    return {name: number for number, name in enumerate(names)}


def _machine(document: dict[str, Any]) -> Iterator[str]:
    facts = document["machine"] | document["settings"]
    shown = {"date", "gpu", "cpu", "cores", "system", "driver", "cuda", "torch", "python"}
    shown |= {"width", "least", "most", "seed"}
    yield f"<p>{escape(str(facts['date']))}</p><ul>"
    yield from (f"<li>{escape(line)}</li>" for line in text.conditions(document))
    yield "</ul>"
    yield "<details><summary>The machine and the settings</summary><table>"
    for name, value in facts.items():
        if name in shown and value is not None:
            yield f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>"
    yield "</table></details>"


# -- charts ----------------------------------------------------------------------------------


def _charts(document: dict[str, Any], colours: dict[str, int]) -> Iterator[str]:
    for mode in document["settings"]["modes"]:
        yield f"<h2>{escape(mode)}</h2><p>{_mode(mode)}.</p>"
        roofs = [_bandwidth(document, mode, colours), _arithmetic(document, mode, colours)]
        for chart in (*roofs, *_by_size(document, mode, colours)):
            if chart:
                yield f"<figure>{svg(chart)}<figcaption>{escape(chart.title)}.</figcaption></figure>"


def _mode(name: str) -> str:
    description = text.MODES.get(name, "")
    return escape(description[:1].upper() + description[1:])


def _measured(case: dict[str, Any], mode: str) -> list[dict[str, Any]]:
    return [row for row in case["results"] if row["mode"] == mode and "median_ns" in row]


def _bandwidth(document: dict[str, Any], mode: str, colours: dict[str, int]) -> Chart | None:
    """Bytes a second against bytes, below the copy of as many bytes."""
    marks: dict[str, list[Point]] = {}
    roof = []
    for case in sorted(document["workloads"], key=lambda each: each["ceilings"][mode]["bytes"]):
        top = case["ceilings"][mode]
        if not top["bytes"] or not (measured := _measured(case, mode)):
            continue
        rate = top["bytes"] / top["copy_ns"] * 1e9
        roof.append(Point(x=top["bytes"], y=rate, low=rate, high=rate))
        for row in measured:
            label = f"{case['name']}: {_rate(row['bytes_per_s'])}, {row['share_of_roof']:.0%} of the roof"
            point = _point(top["bytes"], row, top["bytes"] * 1e9, label)
            marks.setdefault(row["candidate"], []).append(point)
    if not roof:
        return None
    return Chart(
        title="Bytes moved a second against bytes to move; the dashed line is a copy of as many bytes",
        across="bytes that must be moved",
        up="bytes a second",
        series=(*_series(marks, colours), Series(name="copy (memory roof)", points=tuple(roof))),
        write_x=lambda value: _scaled(value, "B"),
        write_y=_rate,
    )


def _arithmetic(document: dict[str, Any], mode: str, colours: dict[str, int]) -> Chart | None:
    """The classic roofline, of the workloads with operations that count."""
    counted = [c for c in document["workloads"] if c["ceilings"][mode]["flops_per_s"]]
    marks: dict[str, list[Point]] = {}
    tops = []
    for case in counted:
        top = case["ceilings"][mode]
        across = top["flops"] / top["bytes"]
        tops.append((across, top["bytes"] / top["copy_ns"] * 1e9, top["flops_per_s"]))
        for row in _measured(case, mode):
            label = f"{case['name']}: {_scaled(row['flops_per_s'], 'FLOP/s')}"
            point = _point(across, row, top["flops"] * 1e9, label)
            marks.setdefault(row["candidate"], []).append(point)
    if not marks:
        return None
    memory, product = max(top[1] for top in tops), max(top[2] for top in tops)
    ridge = product / memory
    ends = (min(t[0] for t in tops) / 4, ridge, max(*(t[0] for t in tops), ridge) * 4)
    roof = tuple(Point(x=x, y=y, low=y, high=y) for x in ends for y in (min(x * memory, product),))
    return Chart(
        title="Operations a second against operations a byte; the dashed line is the roof of the "
        "copy and of torch's matrix product",
        across="operations a byte",
        up="operations a second",
        series=(*_series(marks, colours, joined=False), Series(name="roofline", points=roof)),
        write_x=lambda value: f"{value:g}",
        write_y=lambda value: _scaled(value, "FLOP/s"),
    )


def _by_size(document: dict[str, Any], mode: str, colours: dict[str, int]) -> Iterator[Chart]:
    """Time against size, of each family that was measured at more than one."""
    families: dict[str, list[dict[str, Any]]] = {}
    for case in document["workloads"]:
        if case.get("size"):
            families.setdefault(case["family"], []).append(case)
    for family, cases in families.items():
        cases.sort(key=lambda each: int(each["size"]))
        marks: dict[str, list[Point]] = {}
        roof = []
        for case in cases:
            least = case["ceilings"][mode]["roof_ns"]
            roof.append(Point(x=case["size"], y=least, low=least, high=least))
            for row in _measured(case, mode):
                marks.setdefault(row["candidate"], []).append(
                    Point(
                        x=case["size"],
                        y=row["median_ns"],
                        low=row["low_ns"],
                        high=row["high_ns"],
                        label=f"{case['name']}: {text.duration(row['median_ns'])}",
                    )
                )
        if len(cases) > 1 and marks:
            yield Chart(
                title=f"{family}: time against size; the dashed line is the roof",
                across="size",
                up="median time of a call",
                series=(*_series(marks, colours), Series(name="roof", points=tuple(roof))),
                write_x=lambda value: _scaled(value, ""),
                write_y=text.duration,
            )


def _series(
    marks: dict[str, list[Point]], colours: dict[str, int], *, joined: bool = True
) -> Iterator[Series]:
    for name, points in marks.items():
        yield Series(name=name, points=tuple(points), colour=colours[name], joined=joined)


def _point(x: float, row: dict[str, Any], work: float, label: str) -> Point:
    """A rate with its interval: the long end of the time is the low end of the rate."""
    return Point(
        x=x,
        y=work / row["median_ns"],
        low=work / row["high_ns"],
        high=work / row["low_ns"],
        label=label,
    )


def _scaled(value: float, unit: str) -> str:
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g} {prefix}{unit}".rstrip()
    return f"{value:.3g} {unit}".rstrip()


def _interval(row: dict[str, Any]) -> str:
    """A median's interval, or why it says nothing."""
    if why := row.get("cannot_tell"):
        return f"{text.CANNOT_TELL}: {why}"
    return text.interval(row)


def _rate(value: float) -> str:
    return _scaled(value, "B/s")


# -- tables ----------------------------------------------------------------------------------


def _tables(document: dict[str, Any], colours: dict[str, int]) -> Iterator[str]:
    yield "<h2>All results</h2>"
    is_open = ' open="open"' if len(document["workloads"]) <= _FEW else ""
    for case in document["workloads"]:
        yield f"<details{is_open}><summary>{escape(case['name'])}</summary>"
        for mode in document["settings"]["modes"]:
            yield from _table(case, mode, colours)
        yield "</details>"


def _table(case: dict[str, Any], mode: str, colours: dict[str, int]) -> Iterator[str]:
    rows = sorted(_measured(case, mode), key=lambda row: row["median_ns"])
    most = max((row["high_ns"] for row in rows), default=1.0)
    bound = case["ceilings"][mode]["bound"]
    yield f"<h3>{escape(mode)}, bound by {escape(bound)}</h3>"
    yield '<div class="scroll"><table><tr><th>candidate</th><th class="n">median</th><th></th>'
    yield '<th class="n">95 % interval</th><th class="n">times the kernel&#8217;s</th>'
    yield '<th class="n">rate</th><th class="n">of the roof</th>'
    yield '<th class="n">calls / rounds</th></tr>'
    for row in rows:
        shape = bar(
            row["median_ns"], row["low_ns"], row["high_ns"], most, colours[row["candidate"]]
        )
        yield (
            f"<tr><td>{escape(row['candidate'])}</td>"
            f'<td class="n">{text.duration(row["median_ns"])}</td><td>{shape}</td>'
            f'<td class="n">{escape(_interval(row))}</td>'
            f'<td class="n">{escape(text.beside(row))}</td>'
            f'<td class="n">{_rate(row["bytes_per_s"])}</td>'
            f'<td class="n">{row["share_of_roof"]:.1%}</td>'
            f'<td class="n">{text.counted(row)}</td></tr>'
        )
    for row in case["results"]:
        if row["mode"] == mode and (why := text.left_out(row)):
            yield (
                f'<tr><td>{escape(row["candidate"])}</td><td class="bad">{why[0]}</td>'
                f'<td colspan="6">{escape(why[1])}</td></tr>'
            )
    yield "</table></div>"


def _compared(document: dict[str, Any], before: dict[str, Any]) -> Iterator[str]:
    yield "<h2>Since the last run</h2>"
    yield f"<p>Measured before: {escape(str(before['machine']['date']))}.</p>"
    yield '<div class="scroll"><table><tr><th>workload</th><th>mode</th><th>candidate</th>'
    yield '<th class="n">before</th><th class="n">now</th><th class="n">change</th><th></th></tr>'
    for each in text.changes(document, before):
        mark = {"slower": "bad", "faster": "good"}.get(each.verdict, "")
        cells = (each.workload, each.mode, each.candidate)
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        for number in (each.before_ns, each.now_ns):
            yield f'<td class="n">{text.duration(number)}</td>'
        change = each.now_ns / each.before_ns - 1
        yield f'<td class="n">{change:+.1%}</td><td class="{mark}">{each.verdict}</td></tr>'
    yield "</table></div>"


def _reading(document: dict[str, Any]) -> Iterator[str]:
    yield "<h2>How to read this</h2>"
    yield (
        "<p>Every candidate ran in a process of its own, all in turn, on new inputs in each call. "
        "A time is the median of the rounds&#8217; medians; the interval is theirs, with 95 % "
        "confidence for any distribution of the times. A candidate is compared with the kernel round "
        "by round: what slows the machine for a while slows both. The roof is the larger of two times "
        "measured in the same run: a copy that moves as many bytes, and torch&#8217;s matrix product "
        "with as many operations. A share above 100 % means that the work needs less than a copy "
        "does, as a kernel that reads more than it writes. A refused candidate gave wrong results, "
        "changed its inputs, or reported a time that is not possible.</p>"
    )
    formats = escape(str(document["format"]))
    yield f"<p>Made by kernforge bench; the figures are those of its JSON ({formats}).</p>"
