# SPDX-License-Identifier: Apache-2.0
"""Commands for the machine and for other tools: doctor, export, shell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kernforge import cli_options as options
from kernforge import report as reports
from kernforge.errors import ToolchainError

if TYPE_CHECKING:
    import argparse

    from kernforge.report import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs, _doctor, "doctor", "say what is wrong with this machine for kernels", "--fix"
    )
    verb.add_argument(
        "--fix",
        action="store_true",
        help="remove the locks of torch.utils.cpp_extension that no process holds any more",
    )
    verb.add_argument("--offline", action="store_true", help="do not ask the package indexes")


def _doctor(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import checkup, doctor  # noqa: PLC0415
    from kernforge.run import run  # noqa: PLC0415

    machine = checkup.examine(os.environ, run, ask_network=not arguments.offline)
    removed = checkup.remove_locks(doctor.stale(machine)) if arguments.fix else ()
    findings = [f for f in doctor.diagnose(machine) if f.where not in removed]
    report.result(
        {
            "findings": [reports.finding_document(finding) for finding in findings],
            "removed": list(removed),
        },
        "\n".join(
            [*(f"removed {path}" for path in removed), *map(reports.finding_text, findings)]
            or ["nothing is wrong with this machine"]
        ),
    )
    wrong = sum(finding.severity == "error" for finding in findings)
    if wrong:
        raise ToolchainError(
            f"{wrong} of {len(findings)} findings stop kernels from being built or run here",
            hint="each finding above says what to do",
        )
