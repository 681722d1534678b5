# SPDX-License-Identifier: Apache-2.0
"""The command that prints a completion script for a shell; shtab writes it from the parser.

The script contains the commands and options of the kernforge that wrote it: completion needs no
Python, and a new kernforge needs a new script.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from kernforge.system.console import Console

SHELLS = ("bash", "zsh", "fish")


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _completion, "completion")
    verb.add_argument("shell", choices=SHELLS, help="the shell")


def _completion(arguments: argparse.Namespace, console: Console) -> None:
    text = script(arguments.grammar, arguments.shell)
    console.result({"shell": arguments.shell, "script": text}, text)


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
