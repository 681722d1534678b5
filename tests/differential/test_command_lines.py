# SPDX-License-Identifier: Apache-2.0
"""What the page on coming from ``kernels`` names in the place of its commands is there."""

import re
from pathlib import Path

from kernforge.cli.parser import command_parser
from kernforge.cli.table import COMMANDS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "user" / "switch-from-kernels.md"
ROW = re.compile(r"\| `(?:kernels|kernel-builder) [a-z-]+[^|]*\| `kernforge ([a-z-]+)([^`|]*)`")


def test_every_replacement_of_a_command_exists():
    rows = list(ROW.finditer(PAGE.read_text()))
    assert len(rows) > 15
    for row in rows:
        known = command_parser(COMMANDS[row[1]])._option_string_actions.keys()
        assert set(row[2].split()) <= known, row[0]
