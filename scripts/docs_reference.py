# SPDX-License-Identifier: Apache-2.0
"""Reference pages that are made from the code when the site is built; none of them is in git."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kernforge import errors
from kernforge.cli import main as cli_main
from kernforge.cli.table import COMMANDS
from kernforge.system.environment import Environment, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator

API = (
    *("kernforge", "kernforge.errors", "kernforge.registry", "kernforge.setuptools"),
    "kernforge.testing",
)

_ERRORS = """# Errors and exit codes

Every error is a class of `kernforge.errors` with a `message` and a `hint`. A command prints both
and ends with the exit code of the class. 0 is success, 130 an interrupt by Ctrl-C.

With `--json` a command prints one document, also if it fails: `error` (the class), `message` and
`hint` are keys of the document, together with the part of the result that exists. If the result is
a list, as of `check`, the list is the whole document and the error is printed on standard error.

| exit code | error | what happened |
|---|---|---|"""

_ENVIRONMENT = """# Environment variables

Some replace the default of an option: [commands](commands.md) says which. pip's variables and
`.netrc` apply to the package index.

| variable | meaning |
|---|---|"""


def pages() -> dict[str, str]:
    """The Markdown of each page, by its path below ``docs/``."""
    return {
        "reference/commands.md": commands_page(),
        "reference/errors.md": errors_page(),
        "reference/environment.md": environment_page(),
        # mkdocstrings fills them from the docstrings.
        **{f"reference/api/{name}.md": f"# {name}\n\n::: {name}\n" for name in API},
    }


def commands_page() -> str:
    """Every command's help."""
    parser = cli_main.parser()
    parts = ["# Commands\n", *_help(parser.prog, parser)]
    verbs = _actions(parser)
    for command in COMMANDS:
        verb = verbs[command.name]
        parts += _help(f"kernforge {command.name}", verb)
        for name, action in _actions(verb).items():
            parts += _help(f"kernforge {command.name} {name}", action)
    return "\n".join(parts)


def _actions(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands below a command."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:  # noqa: SLF001 - argparse has no public way
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            found |= action.choices
    return found


def _help(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"## {title}\n", "```text", parser.format_help().rstrip(), "```\n")


def errors_page() -> str:
    """Every error with its exit code."""
    rows = [
        f"| {kind.exit_code} | `{kind.__name__}` | {(kind.__doc__ or '').splitlines()[0]} |"
        for kind in _with_subclasses(errors.KernforgeError)
    ]
    return "\n".join((_ERRORS, *rows, ""))


def _with_subclasses(kind: type[errors.KernforgeError]) -> Iterator[type[errors.KernforgeError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _with_subclasses(below)


def environment_page() -> str:
    """Every variable with its meaning."""
    variables = [v for v in vars(Environment).values() if isinstance(v, Variable)]
    return "\n".join((_ENVIRONMENT, *(f"| `{v.name}` | {v.meaning} |" for v in variables), ""))
