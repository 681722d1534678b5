# SPDX-License-Identifier: Apache-2.0
"""The parsers of the command line, and errors with a suggestion."""

from __future__ import annotations

import argparse
import difflib
import functools
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from kernforge._version import __version__
from kernforge.cli.table import COMMANDS, COMMON, FORMER, GROUPS, Argument, Command
from kernforge.errors import KernforgeError, UsageError
from kernforge.system.tables import page, table

SHELLS = ("bash", "zsh", "fish")
_WITH_PROGRAM = ("run", "shell")  # a program of the user's follows --


class Parser(argparse.ArgumentParser):
    """A parser whose errors are ``UsageError`` with a suggestion."""

    def error(self, message: str) -> NoReturn:
        """Raise an error."""
        raise UsageError(message, hint=f"`{self.prog} --help` shows the arguments and an example")

    def add(self, arguments: Iterable[Argument | tuple[Argument, ...]], **keywords: Any) -> None:
        """Add arguments of the table; those in a tuple exclude each other."""
        for argument in arguments:
            if isinstance(argument, Argument):
                self.add_argument(*argument.names, **argument.keywords, **keywords)
            else:
                group = self.add_mutually_exclusive_group()
                for each in argument:
                    group.add_argument(*each.names, **each.keywords, **keywords)


_FORMATTER = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=28)


def top_parser() -> Parser:
    """The parser of the options before a command."""
    width = max(map(len, COMMANDS))
    groups = (
        f"{title}:\n{table((f'  {each.name:{width}}', each.summary) for each in group)}"
        for title, group in GROUPS.items()
    )
    kinds: list[type[KernforgeError]] = [KernforgeError, *KernforgeError.__subclasses__()]
    codes = [f"{kind.exit_code} {kind.__name__.removesuffix('Error')}" for kind in kinds]
    top = Parser(
        prog="kernforge",
        usage="kernforge [options] COMMAND ...",
        description="GPU kernels for PyTorch, from the first line to production.\n\n"
        + "\n\n".join(groups),
        epilog=textwrap.fill(f"exit codes: 0 success, {', '.join(codes)}, 130 interrupt", 79),
        formatter_class=_FORMATTER,
    )
    top.add_argument("-V", "--version", action="version", version=f"kernforge {__version__}")
    top.add_argument(
        "--print-completion",
        metavar="SHELL",
        choices=SHELLS,
        help="print the completion script of bash, zsh or fish",
    )
    top.add(COMMON)
    return top


def described(command: Command) -> dict[str, Any]:
    """The description of a command for the constructor of its parser."""
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    example = f"example: kernforge {command.name} {command.example}".rstrip()
    return {
        "usage": command.usage,
        "description": textwrap.fill(f"{summary} {command.more}".rstrip(), 79),
        "epilog": f"{example}\n\nmore: {page(command.page)}",
        "formatter_class": _FORMATTER,
    }


def completion_script(shell: str) -> str:
    """The script that lets one of ``SHELLS`` complete commands and options, without a Python."""
    import shtab  # noqa: PLC0415 - an extra

    top = top_parser()
    verbs = top.add_subparsers(prog="kernforge")
    for command in COMMANDS.values():
        verb: Parser = verbs.add_parser(command.name, help=command.summary, **described(command))
        verb.add((*command.arguments, *COMMON))
        for action in verb._actions:  # noqa: SLF001 - argparse has no public way to list them
            if action.type is Path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(top, shell=shell))


def command_parser(command: Command) -> Parser:
    """The parser of a command's arguments; common options may stand before the command too."""
    parser = Parser(prog=f"kernforge {command.name}", **described(command))
    parser.add(command.arguments)
    parser.add(COMMON, default=argparse.SUPPRESS)
    return parser


def read(words: Sequence[str], namespace: argparse.Namespace) -> argparse.Namespace:
    """Parse a command line.

    Args:
        namespace: gets the arguments; ``command`` is the command's name, None without one, and
            ``program`` the words after ``--`` for a command that runs a program.
    """
    if words[:1] == ["help"]:
        words = [*words[1:], "--help"]
    cut = words.index("--") if "--" in words else len(words)
    top = top_parser()
    top.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    top.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments, unknown = top.parse_known_args(words[:cut], namespace)
    _refuse(unknown, top)
    name = arguments.command
    if name is None:
        return arguments
    if name not in COMMANDS:
        _refuse_command(name)
    own, program = arguments.words, words[cut + 1 :]
    if name not in _WITH_PROGRAM:
        own += words[cut:]
    parser = command_parser(COMMANDS[name])
    arguments, unknown = parser.parse_known_args(own, arguments)
    _refuse(unknown, parser)
    arguments.program = program
    return arguments


def _refuse(unknown: Sequence[str], parser: Parser) -> None:
    """Raise an error for unknown arguments, if there are any."""
    if not unknown:
        return
    option = next((text.partition("=")[0] for text in unknown if text.startswith("-")), None)
    if option is None:
        parser.error(f"{unknown[0]!r} is one argument too many for {parser.prog}")
    near = _near(option, parser._option_string_actions)  # noqa: SLF001 - argparse lists none
    meant = f"did you mean {near[0]}? " if near else ""
    raise UsageError(
        f"{parser.prog} has no option {option}",
        hint=f"{meant}`{parser.prog} --help` lists the options",
    )


def _refuse_command(word: str) -> NoReturn:
    if word in FORMER:
        raise UsageError(f"`kernforge {word}` is `kernforge {FORMER[word]}`")
    near = _near(word, COMMANDS)
    meant = f"did you mean `kernforge {near[0]}`? " if near else ""
    raise UsageError(f"there is no command {word!r}", hint=f"{meant}`kernforge` lists all commands")


def _near(word: str, known: Iterable[str]) -> list[str]:
    return difflib.get_close_matches(word, list(known), n=1)
