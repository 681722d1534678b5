# SPDX-License-Identifier: Apache-2.0
"""The command that is pip for projects whose setup.py imports torch."""

from __future__ import annotations

import argparse

from kernforge.cli import options
from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _pip, "pip")
    verb.add_argument(
        "arguments",
        nargs=argparse.REMAINDER,
        metavar="install|wheel [OPTION...] PROJECT...",
        help="a command line of pip; --torch X.Y, --cuda X.Y and --python X.Y among its words say "
        "what is built for (default: the installed torch)",
    )


def _pip(arguments: argparse.Namespace, _console: Console) -> int:
    from kernforge.setuptools import pip  # noqa: PLC0415

    return pip.run_pip(arguments.arguments, arguments.environment)
