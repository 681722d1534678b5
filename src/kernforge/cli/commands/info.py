# SPDX-License-Identifier: Apache-2.0
"""``kernforge info``: the description of a kernel."""

from __future__ import annotations

import argparse

from kernforge.audit import describe
from kernforge.cli import options
from kernforge.system.console import Console
from kernforge.system.tables import counted


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Describe a kernel, or list its versions."""
    if not arguments.versions:
        description = describe.describe(options.kernel(arguments))
        console.result(description, describe.as_text(description))
        return
    versions = describe.published_versions(options.registry(arguments), arguments.what)
    lines = [
        f"{each['version']}  {each['commit']}  {counted(each['variants'], 'variant')}"
        for each in versions
    ]
    console.result(versions, "\n".join(lines))
