# SPDX-License-Identifier: Apache-2.0
"""The live view of ``kernforge dev`` on a terminal."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kernforge.bench.report import duration
from kernforge.binary import kernel_usage
from kernforge.dev import report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from kernforge.dev.rounds import GoodBuild, Round

_PER_SECOND = 8
_COLOURS = {"faster": "green", "slower": "red", "same": ""}


class View:
    """The state of the session in one line, and below it the result of the last round.

    Args:
        console: console to draw on; standard output by default.
    """

    def __init__(self, title: str, console: Console | None = None) -> None:
        self._title = title
        self._state, self._words, self._since = "starting", "", time.monotonic()
        self._round: Round | None = None
        self._good: GoodBuild | None = None
        self._spinner = Spinner("dots")
        self._lock = threading.Lock()
        self._screen = Live(
            get_renderable=self._draw,
            console=console or Console(),
            refresh_per_second=_PER_SECOND,
            vertical_overflow="ellipsis",
        )

    def __enter__(self) -> None:
        self._screen.start()

    def __exit__(self, *_: object) -> None:
        self._state, self._words = "ended", ""
        self._screen.stop()

    def state(self, state: str, words: str) -> None:
        """A stage begins or continues with another step."""
        with self._lock:
            if state != self._state:
                self._since = time.monotonic()
            self._state, self._words = state, words

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """A round ended."""
        with self._lock:
            self._round, self._good = result, good

    def _draw(self) -> RenderableType:
        with self._lock:
            parts = [self._head(), *self._body()]
        return Panel(Group(*parts), title=self._title, title_align="left", border_style="dim")

    def _head(self) -> RenderableType:
        line = Table.grid(padding=(0, 1))
        if self._state in ("idle", "ended"):
            words = self._words or "waiting for a change; Ctrl-C ends"
            line.add_row(Text(self._state, style="bold"), "" if self._state == "ended" else words)
        else:
            seconds = f"{time.monotonic() - self._since:.1f} s"
            line.add_row(self._spinner, Text(self._state, style="bold cyan"), seconds, self._words)
        return line

    def _body(self) -> Iterator[RenderableType]:
        result = self._round
        if result is None:
            return
        style = "bold green" if result.ok else "bold red"
        yield Text(f"\nround {result.number}: {result.work.reason}", style="dim")
        yield Text(report.summary(result, self._good), style=style)
        for line in report.problems(result):
            yield Text(line, style="bold red" if ": error: " in line else "")
        if result.kernels:
            yield self._kernels(result)
        if result.unread:
            yield Text(f"not read: {result.unread}", style="dim")
        for line in report.tests(result):
            yield Text(line, style="red" if line.startswith("  ") else "")
        if result.ratios:
            yield self._times(result)
        if result.unmeasured:
            yield Text(f"not measured: {result.unmeasured}", style="dim")

    @staticmethod
    def _kernels(result: Round) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name in kernel_usage.HEAD:
            table.add_column(name, overflow="fold")
        for kernel, row in zip(result.kernels, kernel_usage.rows(result.kernels), strict=True):
            if table.row_count == report.KERNELS_SHOWN:
                break
            spilled = kernel.use.spill_stores or kernel.use.spill_loads
            table.add_row(*(Text(cell) for cell in row), style="yellow" if spilled else "")
        hidden = len(result.kernels) - table.row_count
        return Group(table, Text(f"and {hidden} more", style="dim")) if hidden else table

    @staticmethod
    def _times(result: Round) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="dim", caption_style="dim")
        for name in ("workload", "mode", "time", "of the last good", "between"):
            table.add_column(name)
        for time_ratio in result.ratios:
            if time_ratio.refused:
                table.add_row(
                    time_ratio.workload, time_ratio.mode, Text(time_ratio.refused, style="red")
                )
                continue
            ratio, between = "-", ""
            if time_ratio.ratio is not None:
                ratio = f"{time_ratio.ratio:.3f}"
                between = f"{time_ratio.low:.3f} and {time_ratio.high:.3f}"
            now = duration(time_ratio.median_ns)
            row = (time_ratio.workload, time_ratio.mode, now, ratio, between)
            table.add_row(*row, style=_COLOURS.get(report.verdict(time_ratio), ""))
        table.caption = report.SHORT
        return table
