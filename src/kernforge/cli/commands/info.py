# SPDX-License-Identifier: Apache-2.0
"""``kernforge info``: the description of a kernel."""

from __future__ import annotations

import argparse

from kernforge.audit import describe
from kernforge.cli import options
from kernforge.registry import api
from kernforge.registry.names import request
from kernforge.system.console import Console
from kernforge.system.tables import counted


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Describe a kernel, or list its versions."""
    if not arguments.versions:
        description = describe.describe(options.kernel(arguments))
        console.result(description, describe.as_text(description))
        return
    registry, repo_id = options.registry(arguments), arguments.what
    versions = describe.published_versions(registry, repo_id)
    if not versions:
        api.find(registry, request(repo_id, revision="main"))  # an error says what is missing
    lines = [
        f"{each['version']}  {each['commit']}  {counted(each['variants'], 'variant')}"
        for each in versions
    ]
    console.result(versions, "\n".join(lines))
