# SPDX-License-Identifier: Apache-2.0
"""``kernforge doctor``: problems of this machine, and its description."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from kernforge.application import download
from kernforge.doctor import examine, rules
from kernforge.errors import ToolchainError
from kernforge.loader import host
from kernforge.system.console import Console
from kernforge.system.process import run as run_program
from kernforge.system.tables import counted


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Print the problems of this machine, or describe it."""
    if arguments.platform:
        name = download.platform_name(host.probe())
        console.result({"platform": name}, name)
        return
    machine = examine.examine(arguments.environment, run_program, ask_network=not arguments.offline)
    findings = rules.diagnose(machine)
    console.result(
        {"findings": [asdict(finding) for finding in findings]},
        "\n".join(map(str, findings)) or "no problem was found on this machine",
    )
    if wrong := sum(finding.severity == "error" for finding in findings):
        raise ToolchainError(
            f"{counted(wrong, 'problem')} of this machine: kernels cannot be built or run here",
            hint="follow the hint of each finding above",
        )
