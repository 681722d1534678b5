# SPDX-License-Identifier: Apache-2.0
"""A completion script for a shell; shtab writes it from the parser.

The script contains the commands and options of the kernforge that wrote it: completion needs no
Python, and a new kernforge needs a new script.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")


def script(grammar: argparse.ArgumentParser, shell: str) -> str:
    """Text of the script for one of ``SHELLS``.

    Raises:
        ModuleNotFoundError: shtab is not installed.
    """
    import shtab  # noqa: PLC0415 - an extra

    for action in _actions(grammar):
        if isinstance(action.choices, dict):
            action.help = None  # shtab leaves out what the help leaves out
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(grammar, shell=shell))


def _actions(grammar: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and argument of every command."""
    for action in grammar._actions:  # noqa: SLF001 - argparse has no public way to list them
        yield action
        if isinstance(action.choices, dict):
            for verb in action.choices.values():
                yield from _actions(verb)
