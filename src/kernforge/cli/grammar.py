# SPDX-License-Identifier: Apache-2.0
"""The grammar of the command line: its help in groups, and errors that say what was meant."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from kernforge.cli.table import COMMANDS, FORMER, GROUPS
from kernforge.errors import UsageError
from kernforge.system.tables import table


class Grammar(argparse.ArgumentParser):
    """A parser whose errors are ``UsageError`` with a suggestion."""

    def error(self, message: str) -> NoReturn:
        """Raise an error."""
        raise UsageError(message, hint=f"`{self.prog} --help` shows the arguments and an example")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no public name
            if value in FORMER:
                raise UsageError(f"`kernforge {value}` is now `kernforge {FORMER[value]}`")
            raise UsageError(f"there is no command {value!r}", hint=_command_hint(str(value)))
        choices = [str(choice) for choice in action.choices]
        meant = f"; did you mean {close[0]}?" if (close := _close(str(value), choices)) else ""
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(choices)}{meant}")


def read(
    top: Grammar, argv: Sequence[str] | None, namespace: argparse.Namespace
) -> argparse.Namespace:
    """Parse a command line.

    Args:
        top: the parser of all commands; each command has set ``spoken`` to its own parser.

    Raises:
        UsageError: an argument is wrong, missing or not known.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["help"]:  # what many tools have, and what is tried first
        words = [*words[1:], "--help"]
    command = None
    if "shell" in words[:1] and "--" in words:  # what follows is a command of the user's
        cut = words.index("--")
        words, command = words[:cut], words[cut + 1 :]
    arguments, rest = top.parse_known_args(words, namespace)
    if command is not None:
        arguments.command = command
    if not rest:
        return arguments
    spoken: Grammar = getattr(arguments, "spoken", top)
    unknown = next((text for text in rest if text.startswith("-")), None)
    if unknown is None:
        raise UsageError(
            f"{rest[0]!r} is one argument too many for {spoken.prog}",
            hint=f"`{spoken.prog} --help` shows the arguments and an example",
        )
    option = unknown.partition("=")[0]
    known = [text for action in spoken._actions for text in action.option_strings]  # noqa: SLF001
    owners = _owners(top, option)
    close = [] if owners else _close(option, known)
    hint = f"did you mean {close[0]}? " if close else ""
    hint += f"{' and '.join(owners)} {'have' if owners[1:] else 'has'} it; " if owners else ""
    raise UsageError(
        f"{spoken.prog} has no option {option}",
        hint=f"{hint}`{spoken.prog} --help` lists the options",
    )


def _owners(top: Grammar, option: str) -> list[str]:
    """The commands that have an option."""
    verbs = next(a.choices for a in top._actions if isinstance(a.choices, dict))  # noqa: SLF001
    return [f"`{p.prog}`" for p in verbs.values() if option in p._option_string_actions]  # noqa: SLF001


def overview() -> str:
    """All commands in their groups, as text."""
    width = max(len(command.name) for command in COMMANDS)
    blocks = []
    for group, title in GROUPS.items():
        rows = [(f"  {c.name:{width}}", c.summary) for c in COMMANDS if c.group == group]
        blocks.append(f"{title}:\n{table(rows)}")
    return "\n\n".join(blocks)


def _command_hint(word: str) -> str:
    names = {name: command.name for command in COMMANDS for name in (command.name, *command.others)}
    close = [word] if word in names else _close(word, names)
    meant = f"did you mean `kernforge {names[close[0]]}`? " if close else ""
    return f"{meant}`kernforge` lists all commands"


def _close(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=1)
