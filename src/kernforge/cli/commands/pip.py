# SPDX-License-Identifier: Apache-2.0
"""``kernforge pip``: pip for projects whose setup.py imports torch."""

from __future__ import annotations

import argparse

from kernforge.setuptools import pip
from kernforge.system.console import Console


def run(arguments: argparse.Namespace, _console: Console) -> None:
    """Run pip in the place of this process."""
    pip.run_pip(arguments.arguments, arguments.environment)
