# SPDX-License-Identifier: Apache-2.0
"""The inner loop: dev."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kernforge.cli import options

if TYPE_CHECKING:
    from kernforge.dev.build import DevOptions
    from kernforge.dev.rounds import GoodBuild, Round
    from kernforge.dev.watch import Watcher
    from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _dev, "dev")
    options.add_project(verb)
    options.add_variants(verb, "the one for this process's torch")
    options.add_repeated(
        verb,
        "--arch",
        "compile for this GPU, such as 9.0; may be repeated (default: this machine's GPU)",
        type=options.capability,
    )
    options.add_flag(verb, "--once", "run one round; its result is the exit code")
    options.add_flag(verb, "--no-test", "run no tests")
    options.add_flag(verb, "--no-bench", "run no benchmark")
    options.add_pytest(verb)
    options.add_repeated(
        verb,
        "--workload",
        "measure this workload of benchmarks/workloads.py; may be repeated (default: the first)",
    )
    options.add_jobs(verb)
    options.add_sandbox(verb)


def _dev(arguments: argparse.Namespace, console: Console) -> int | None:
    from kernforge.dev import watch  # noqa: PLC0415
    from kernforge.dev.build import DevOptions  # noqa: PLC0415
    from kernforge.project import api as project  # noqa: PLC0415

    root = project.find(arguments.project)
    session = DevOptions(
        root=root,
        place=watch.place(root, arguments.environment.home),
        environment=arguments.environment,
        variants=tuple(arguments.variant),
        arch=tuple(arguments.arch),
        local_parts=options.local_parts(arguments),
        sandbox=arguments.sandbox,
        jobs=arguments.jobs,
        test=not arguments.no_test,
        bench=not arguments.no_bench,
        pytest=tuple(arguments.pytest),
        workloads=tuple(arguments.workload),
    )
    plain = arguments.json or arguments.quiet or not sys.stdout.isatty()
    if plain:
        return _follow(session, _Lines(console), once=arguments.once)
    from kernforge.dev.view import View  # noqa: PLC0415 - a terminal's

    view = View()
    with view:
        return _follow(session, view, once=arguments.once)


def _follow(session: DevOptions, watcher: Watcher, *, once: bool) -> int | None:
    from kernforge.dev import watch  # noqa: PLC0415

    if once:
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
        from kernforge.dev import report as dev_report  # noqa: PLC0415

        self._console.line(dev_report.document(result, good), dev_report.text(result, good))
