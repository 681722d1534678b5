# SPDX-License-Identifier: Apache-2.0
"""``python -m kernforge``, and where the installed command begins."""

from __future__ import annotations

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run a command and exit; an interrupt while its modules are imported is one like others."""
    try:
        from kernforge.cli import main as cli  # noqa: PLC0415 - see above
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    cli.main()


if __name__ == "__main__":
    main()
