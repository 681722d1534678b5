# SPDX-License-Identifier: Apache-2.0
"""``python -m kernforge``, and the entry points of the installed commands."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run a command and exit; Ctrl-C and SIGTERM let it clean up, a second one ends it at once.

    An ignored interrupt, as with ``nohup``, stays ignored.
    """
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _interrupt)
        signal.signal(signal.SIGTERM, _interrupt)
        from kernforge.cli import main as cli  # noqa: PLC0415 - an interrupt of it is one, too
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def main_as_client() -> None:
    """Run a command line of ``kernels``, for kernforge in its place."""
    from kernforge.cli import client  # noqa: PLC0415 - as above

    sys.argv[1:] = client.translated(sys.argv[1:])
    main()


if __name__ == "__main__":
    main()
