# SPDX-License-Identifier: Apache-2.0
"""``python -m kernforge``, and where the installed command begins."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run a command and exit; an interrupt while its modules are imported is one like others.

    Before this function begins, an interrupt is Python's own to answer: while it imports ``site`` it
    ends with 1, and later by the signal itself, which shells show as 130.
    """
    try:
        from kernforge.cli import interrupts  # noqa: PLC0415 - see above

        interrupts.end_at_once()
        from kernforge.cli import main as cli  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    cli.main()


def main_as_client() -> None:
    """``main`` with the arguments of ``kernels``, where kernforge stands in for it."""
    from kernforge.cli import client  # noqa: PLC0415 - as above

    sys.argv[1:] = client.translated(sys.argv[1:])
    main()


if __name__ == "__main__":
    main()
