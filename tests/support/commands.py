# SPDX-License-Identifier: Apache-2.0
"""Commands in this process."""

import pytest

from kernforge.cli import main


def call(*argv: object) -> int:
    """The exit code of ``kernforge ARGV``."""
    with pytest.raises(SystemExit) as ended:
        main.main([str(word) for word in argv])
    return ended.value.code
