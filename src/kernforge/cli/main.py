# SPDX-License-Identifier: Apache-2.0
"""The command line: parse the arguments, call the command's function, print the result.

Exit codes are those of ``kernforge.errors``; 0 is success, 130 an interrupt.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kernforge.cli import parser
from kernforge.errors import KernforgeError
from kernforge.system import extras, garbage
from kernforge.system.console import Console
from kernforge.system.environment import Environment


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit."""
    if argv is None:  # otherwise a program or a test calls this function
        garbage.collect_rarely()
    words = sys.argv[1:] if argv is None else list(argv)
    console = Console(as_json="--json" in words)
    try:
        arguments = parser.read(words, argparse.Namespace(environment=Environment.read()))
        console = Console(as_json=arguments.json, quiet=arguments.quiet, verbose=arguments.verbose)
        sys.exit(_run(arguments, console))
    except KernforgeError as error:
        _fail(console, error)
    except ImportError as error:
        missing = extras.missing(error, "this command")
        if missing is None:
            raise
        _fail(console, missing)
    except BrokenPipeError:
        # The reader of the pipe has ended, as `head` does. Buffered output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        from kernforge.system import files  # noqa: PLC0415 - few commands end so

        _fail(console, files.storage_error(error))
    except KeyboardInterrupt:
        console.note(
            "interrupted: the child processes on this machine were stopped; no file is incomplete"
        )
        sys.exit(130)


def _run(arguments: argparse.Namespace, console: Console) -> int:
    """Run the command, or print the help or a completion script; returns the exit code."""
    code = 0
    if arguments.command:
        command = importlib.import_module(f"kernforge.cli.commands.{arguments.command}")
        code = command.run(arguments, console) or 0
    elif shell := arguments.print_completion:
        text = parser.completion_script(shell)
        console.result({"shell": shell, "script": text}, text)
    else:
        parser.top_parser().print_help()
    console.close()
    return code


def _fail(console: Console, error: KernforgeError) -> NoReturn:
    console.error(error)
    sys.exit(error.exit_code)
