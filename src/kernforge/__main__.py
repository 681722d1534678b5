# SPDX-License-Identifier: Apache-2.0
"""``python -m kernforge``, and the entry points of the installed commands."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run a command and exit; Ctrl-C and SIGTERM let it clean up, a second one ends it at once.

    So does SIGHUP, of a terminal that is closed. An ignored interrupt or SIGHUP, as with ``nohup``,
    stays ignored.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            signal.signal(signal.SIGHUP, _interrupt)
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, the programs' status would be lost
        _open_missing()
        from kernforge.cli import main as cli  # noqa: PLC0415 - an interrupt of it is one, too
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _open_missing() -> None:
    """Open the standard streams that are closed, or the next files would get their numbers."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def main_as_client() -> None:
    """Run a command line of ``kernels``, for kernforge in its place."""
    from kernforge.cli import client  # noqa: PLC0415 - as above

    sys.argv[1:] = client.translated(sys.argv[1:])
    main()


if __name__ == "__main__":
    main()
