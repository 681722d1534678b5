# SPDX-License-Identifier: Apache-2.0
"""``kernforge shell``: a shell with the compilers, headers and package of a variant."""

from __future__ import annotations

import argparse

from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.export import shell
from kernforge.project import targets
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Run a shell or the user's program in a variant's environment, in this process's place."""
    environment, program = arguments.environment, arguments.program
    if arguments.json and program:
        raise UsageError(
            f"--json prints the environment and does not run {program[0]}",
            hint="remove --json or the program",
        )
    workspace = options.workspace(arguments, console)
    patterns = [arguments.variant] if arguments.variant else []
    target = targets.choose(workspace.candidates, patterns)[-1]
    out, links = workspace.project.root / "build", environment.home / "shells"
    setting = shell.setting(workspace, target, out, environment.variables, links=links)
    if setting.built is None:
        console.note(f"note: {setting.variant} is not built: run `kernforge build` to build it")
    if arguments.json:
        document = {
            "variant": setting.variant,
            "environment": dict(setting.variables),
            "built": str(setting.built) if setting.built else None,
        }
        console.result(document, "")
        return
    if not program:
        names = ", ".join(sorted(setting.variables))
        console.note(f"{setting.variant}: {names} are set; `exit` leaves")
    try:
        shell.enter(setting, program, environment)
    except (FileNotFoundError, PermissionError) as error:
        raise UsageError(
            f"{error.filename} cannot be run: {error.strerror}",
            hint="check PATH, or make it executable with chmod +x",
        ) from error
