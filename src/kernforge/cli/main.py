# SPDX-License-Identifier: Apache-2.0
"""The command line: parse the arguments, call a function, print the result.

Exit codes are those of ``kernforge.errors``; 0 is success, 130 an interrupt.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from kernforge._version import __version__
from kernforge.cli import completion, grammar, options
from kernforge.cli.commands import (
    application,
    authoring,
    bench,
    build,
    dev,
    pip,
    publish,
    test,
    tools,
    trust,
    wheel,
)
from kernforge.errors import KernforgeError, StorageError
from kernforge.system import extras, garbage
from kernforge.system.console import Console
from kernforge.system.environment import Environment

_COMMANDS = (
    authoring,
    build,
    dev,
    bench,
    test,
    publish,
    application,
    trust,
    wheel,
    pip,
    tools,
)

_WHAT = "GPU kernels for PyTorch, from the first line to production."
_KINDS: tuple[type[KernforgeError], ...] = (KernforgeError, *KernforgeError.__subclasses__())
_EXIT_CODES = "exit codes:\n   0  success\n" + "\n".join(
    f"  {kind.exit_code:2}  {(kind.__doc__ or '').splitlines()[0].rstrip('.')}" for kind in _KINDS
)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit."""
    if argv is None:  # This process is the command; otherwise a program or a test calls it.
        garbage.collect_rarely()
    console = Console(as_json="--json" in (sys.argv if argv is None else argv))
    try:
        top = parser()
        environment = argparse.Namespace(environment=Environment.read(), grammar=top)
        arguments = grammar.read(top, argv, environment)
        console = Console(as_json=arguments.json, quiet=arguments.quiet, verbose=arguments.verbose)
        code = arguments.verb(arguments, console)
        console.close()
    except KernforgeError as error:
        console.error(error)
        sys.exit(error.exit_code)
    except ImportError as error:
        missing = extras.missing(error, "this command")
        if missing is None:
            raise
        console.error(missing)
        sys.exit(missing.exit_code)
    except BrokenPipeError:
        # The reader of the output has ended, as `head` does. Buffered output is discarded.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        from kernforge.system import files  # noqa: PLC0415

        console.error(files.storage_error(error))
        sys.exit(StorageError.exit_code)
    except KeyboardInterrupt:
        console.note(
            "interrupted: the programs that it had started on this machine were stopped, and no "
            "file is incomplete"
        )
        sys.exit(130)
    sys.exit(code or 0)


def parser() -> grammar.Grammar:
    """The parser of the command line."""
    top = grammar.Grammar(
        prog="kernforge",
        usage="kernforge [options] COMMAND ...",
        description=f"{_WHAT}\n\n{grammar.overview()}",
        epilog=f"{_EXIT_CODES}\n 130  an interrupt\n\n"
        "documentation: README.md and docs/ of the repository",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("-V", "--version", action="version", version=f"kernforge {__version__}")
    top.add_argument(
        "--print-completion",
        choices=completion.SHELLS,
        help="print a script with which this shell completes commands",
    )
    options.add_common(top, default=False)
    top.set_defaults(verb=_overview)
    verbs = top.add_subparsers(prog="kernforge", metavar="COMMAND", help=argparse.SUPPRESS)
    for module in _COMMANDS:
        module.add(verbs)
    return top


def _overview(arguments: argparse.Namespace, console: Console) -> None:
    """Print the completion that was asked for, else the help, which lists the commands."""
    if shell := arguments.print_completion:
        text = completion.script(arguments.grammar, shell)
        console.result({"shell": shell, "script": text}, text)
    else:
        arguments.grammar.print_help()
