# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: build, test and measure after every change."""

from __future__ import annotations

import argparse
import contextlib
import sys

from kernforge.dev import report, watch
from kernforge.dev.rounds import GoodBuild, Round
from kernforge.dev.session import DevOptions
from kernforge.dev.watch import Watcher
from kernforge.project import api as projects
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, console: Console) -> int | None:
    """Watch the project until an interrupt, or run one round and return its exit code."""
    root = projects.find(arguments.project)
    environment = arguments.environment
    session = DevOptions(
        root=root,
        place=watch.place(root, environment.home),
        environment=environment,
        variants=tuple(arguments.variant),
        arch=tuple(arguments.arch),
        sandbox=arguments.sandbox,
        test=not arguments.no_test,
        bench=not arguments.no_bench,
        pytest=tuple(arguments.pytest),
        workloads=tuple(arguments.workload),
    )
    with contextlib.ExitStack() as stack:
        watcher: Watcher = _Lines(console)
        if not arguments.json and not arguments.quiet and sys.stdout.isatty():
            from kernforge.dev.report import View  # noqa: PLC0415 - a terminal's

            watcher = view = View()
            stack.enter_context(view)
        if arguments.once:
            return watch.once(session, watcher)
        watch.watch(session, watcher)
    return None


class _Lines:
    """Prints a session as lines of JSON or of text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = ""

    def state(self, state: str, words: str) -> None:
        """Print the begin of a stage."""
        if state != self._state:
            self._state = state
            self._console.note(f"{state} {words}".strip())

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """Print the result of a round."""
        self._console.line(report.document(result, good), report.text(result, good))
