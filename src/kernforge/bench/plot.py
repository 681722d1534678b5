# SPDX-License-Identifier: Apache-2.0
"""Charts of a report by matplotlib (the extra ``bench``), alone or in an HTML page with text."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

from kernforge.bench import report as bench_report
from kernforge.bench.run import Report
from kernforge.bench.workload import Mode

KINDS = (".html", ".svg", ".png", ".pdf")
ROOF = "the roof"
_WIDTH_IN, _ROW_IN = 8.0, 0.3


def draw(report: Report, kind: str) -> bytes:
    """The candidates beside the kernel in the first mode; of ``.html`` all charts and the text."""
    if kind != ".html":
        return _bytes(beside(report, report.settings.modes[0]), kind.removeprefix("."))
    title = html.escape(report.title)
    charts = []
    for mode in report.settings.modes:
        figures = (beside(report, mode), against_size(report, mode))
        charts += [base64.b64encode(_bytes(each, "svg")).decode() for each in figures if each]
    images = "\n".join(f'<img alt="" src="data:image/svg+xml;base64,{each}">' for each in charts)
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif }} img {{ background: #fff }}</style>
<h1>{title}</h1>
{images}
<pre>{html.escape(bench_report.text(report))}</pre>
</html>
"""
    return page.encode()


def beside(report: Report, mode: Mode) -> Any:
    """A figure of bars: the ratio of each candidate to the kernel, with intervals."""
    shown: list[tuple[str, float, float, float]] = []
    for case in report.workloads:
        for each in case.of(mode):
            if ratio := each.ratio:
                label = f"{each.candidate}, {case.name}"
                shown.append((label, ratio.value, ratio.low, ratio.high))
    figure, axes = _figure(report, max(2.0, 1.2 + _ROW_IN * len(shown)))
    places = range(len(shown))
    values = [value for _, value, _, _ in shown]
    errors = [[v - low for _, v, low, _ in shown], [high - v for _, v, _, high in shown]]
    axes.barh(places, values, xerr=errors if shown else None, color="#4477aa", ecolor="#333333")
    axes.set_yticks(list(places), [label for label, _, _, _ in shown])
    axes.invert_yaxis()
    axes.axvline(1.0, color="#cc3311", linewidth=1)
    axes.set_xlabel(f"ratio to the kernel, {mode}; above 1 the kernel is faster")
    return figure


def against_size(report: Report, mode: Mode) -> Any | None:
    """Figure of time against size, with the roof; None where fewer than two sizes are known."""
    sized = sorted((case for case in report.workloads if case.size), key=lambda case: case.size)
    if len({case.size for case in sized}) < 2:  # noqa: PLR2004
        return None
    lines: dict[str, list[tuple[int, float]]] = {}
    for case in sized:
        results = case.of(mode)
        times = {each.candidate: each.median_ns for each in results if each.median_ns}
        roof_ns = results[0].roof_ns
        for name, nanoseconds in (times | ({ROOF: roof_ns} if roof_ns else {})).items():
            lines.setdefault(f"{name}, {case.family}", []).append((case.size, nanoseconds / 1e3))
    figure, axes = _figure(report, 4.5)
    for label, points in lines.items():
        style = {"linestyle": "--", "color": "#888888"} if label.startswith(ROOF) else {}
        axes.plot(*zip(*points, strict=True), label=label, **style or {"marker": "."})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("elements")
    axes.set_ylabel(f"us, {mode}")
    axes.legend(fontsize="x-small")
    return figure


def _figure(report: Report, height: float) -> tuple[Any, Any]:
    # Not pyplot, which wants a display and keeps all figures.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(_WIDTH_IN, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(report.title)
    return figure, axes


def _bytes(figure: Any, kind: str) -> bytes:
    out = io.BytesIO()
    # Without a date, so that equal reports give equal files.
    figure.savefig(out, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return out.getvalue()
