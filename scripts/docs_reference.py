# SPDX-License-Identifier: Apache-2.0
"""Reference pages that are made from the code when the site is built; none of them is in git."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge import errors
from kernforge.cli.parser import command_parser, top_parser
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
    parsers = [top_parser(), *map(command_parser, COMMANDS.values())]
    parts = (f"## {each.prog}\n\n```text\n{each.format_help().rstrip()}\n```\n" for each in parsers)
    return "\n".join(("# Commands\n", *parts))


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
