# SPDX-License-Identifier: Apache-2.0
"""What the page on coming from ``kernels`` names in the place of its commands is there."""

import argparse
import re
from pathlib import Path

from kernforge.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "user" / "switch-from-kernels.md"
ROW = re.compile(r"\| `(?:kernels|kernel-builder) [a-z-]+[^|]*\| `kernforge ([a-z-]+)([^`|]*)`")


def test_every_replacement_of_a_command_exists():
    (verbs,) = (a for a in main.parser()._actions if isinstance(a, argparse._SubParsersAction))
    rows = list(ROW.finditer(PAGE.read_text()))
    assert len(rows) > 15
    for row in rows:
        known = {o for a in verbs.choices[row[1]]._actions for o in a.option_strings}
        assert set(row[2].split()) <= known, row[0]
