# SPDX-License-Identifier: Apache-2.0
"""``kernforge dev``: build, test and measure after every change."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console as Terminal

from kernforge.dev import watch
from kernforge.dev.report import View
from kernforge.dev.session import DevOptions
from kernforge.project import api as projects
from kernforge.system.console import Console
from kernforge.system.environment import is_terminal


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
    plain = arguments.json or arguments.quiet or not is_terminal(sys.stdout)
    with View(console, None if plain else Terminal()) as view:
        if arguments.once:
            return watch.once(session, view)
        watch.watch(session, view)
    return None
