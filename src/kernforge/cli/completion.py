# SPDX-License-Identifier: Apache-2.0
"""A completion script for a shell, written by shtab from the parsers.

The script contains the commands and options of this release, so completion starts no Python.
"""

from __future__ import annotations

from pathlib import Path

import shtab

from kernforge.cli.parser import Parser, described, top_parser
from kernforge.cli.table import COMMANDS, COMMON


def script(shell: str) -> str:
    """The script for one of ``parser.SHELLS``."""
    top = top_parser()
    verbs = top.add_subparsers(prog="kernforge")
    for command in COMMANDS.values():
        verb: Parser = verbs.add_parser(command.name, help=command.summary, **described(command))
        verb.add((*command.arguments, *COMMON))
        for action in verb._actions:  # noqa: SLF001 - argparse has no public way to list them
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(top, shell=shell))
