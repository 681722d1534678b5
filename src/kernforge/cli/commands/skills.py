# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: the documentation for coding assistants."""

from __future__ import annotations

import argparse
from pathlib import Path

from kernforge.project import skills
from kernforge.system.console import Console
from kernforge.system.environment import expanded
from kernforge.system.tables import counted


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Write the pages where the assistants look for them."""
    user = getattr(arguments, "global")
    root = expanded("~") if user else Path()
    places = skills.directories(root, tuple(arguments.places), user=user)
    written = [skills.write(directory) for directory in places]
    console.result(
        {"skill": skills.NAME, "directories": [str(path) for path in written]},
        "\n".join(f"{path}: {counted(len(skills.texts()), 'file')}" for path in written),
    )
