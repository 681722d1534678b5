# SPDX-License-Identifier: Apache-2.0
"""``kernforge run``: run a program with kernforge in the place of ``kernels``."""

from __future__ import annotations

import argparse

from kernforge.compat import shim
from kernforge.errors import UsageError
from kernforge.system.console import Console
from kernforge.system.process import Command, replace_by


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Run the program in the place of this process, or write the wheel."""
    environment, program = arguments.environment, arguments.program
    version = arguments.as_kernels or shim.claimed_version(environment)
    if arguments.write_wheel is not None and not program:
        path = shim.write_wheel(arguments.write_wheel, version, environment.home)
        console.result({"path": str(path), "version": version}, str(path))
        return
    if arguments.write_wheel is not None or arguments.as_kernels is None or not program:
        raise UsageError(
            "give --as-kernels and a program to run, or --write-wheel alone",
            hint="kernforge run --as-kernels -- python app.py",
        )
    added = shim.command_environment(environment, version)
    try:
        replace_by(Command(argv=tuple(program), env=environment.variables, added=added))
    except FileNotFoundError:
        raise UsageError(f"there is no program {program[0]!r}", hint="check PATH") from None
