# SPDX-License-Identifier: Apache-2.0
"""The live view of a build on a terminal: running actions with their time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table

from kernforge.system.progress_lines import ProgressLines

_ROWS = 12


class Live(ProgressLines):
    """A few lines at the end of standard error that are updated while a build runs."""

    def __init__(
        self,
        total: int,
        usage: Callable[[], Mapping[str, int]],
        console: Console | None = None,
    ) -> None:
        super().__init__(total, usage, self._print)
        self._screen = Screen(
            get_renderable=self._draw,
            console=console or Console(stderr=True),
            refresh_per_second=4,
            transient=True,
        )

    def _print(self, text: str) -> None:
        """Print above the view."""
        self._screen.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _show(self) -> Callable[[], None]:
        self._screen.start()
        return self._screen.stop

    def _draw(self) -> Table:
        now, usage = time.monotonic(), self._usage()
        with self._lock:
            running = sorted(self._running.items(), key=lambda item: item[1][1])
        table = Table.grid(padding=(0, 2))
        for key, (title, start) in running[:_ROWS]:
            used = f"{usage[key] / 1e9:.1f} GB" if usage.get(key) else ""
            table.add_row(f"{now - start:6.1f} s", f"{used:>8}", title)
        hidden = len(running) - _ROWS
        more = f", {hidden} of them not shown" if hidden > 0 else ""
        total = sum(usage.values())
        table.add_row(
            f"{self._ended:>4} of {self._total}",
            f"{total / 1e9:.1f} GB" if total else "",
            f"{len(running)} running{more}",
        )
        return table
