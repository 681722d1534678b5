# SPDX-License-Identifier: Apache-2.0
"""The command that lets a shell complete the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.cli import completion_scripts, options

if TYPE_CHECKING:
    import argparse

    from kernforge.system.console import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _completion,
        "completion",
        "print a script that lets your shell complete commands and options",
        "bash > ~/.local/share/bash-completion/completions/kernforge",
    )
    verb.add_argument("shell", choices=completion_scripts.SHELLS, help="the shell")


def _completion(arguments: argparse.Namespace, report: Report) -> None:
    text = completion_scripts.script(arguments.grammar, arguments.shell)
    report.result({"shell": arguments.shell, "script": text}, text)
