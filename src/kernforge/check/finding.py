# SPDX-License-Identifier: Apache-2.0
"""What a check has to say about an artifact."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernforge.errors import CheckError
from kernforge.system.tables import counted

Severity: TypeAlias = Literal["error", "warning", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise, or one that could not be checked.

    Attributes:
        rule: the rule's name, as in ``floor``.
        severity: ``error`` breaks users, ``warning`` may, ``skipped`` was not checked.
        where: the file, relative to the folder of variants.
        message: what is wrong, where it breaks.
        hint: how to fix it; for ``skipped`` how to have it checked.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    hint: str

    def __str__(self) -> str:
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{self.severity}: {self.where}: {self.message} [{self.rule}]{hint}"


def finding(
    rule: str, where: str, message: str, hint: str, severity: Severity = "error"
) -> Finding:
    """A finding; an error if nothing else is said."""
    return Finding(rule=rule, severity=severity, where=where, message=message, hint=hint)


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Raise an error if a finding is one.

    Raises:
        CheckError: one is.
    """
    wrong = [finding for finding in findings if finding.severity == "error"]
    if wrong:
        raise CheckError(
            f"{counted(len(wrong), 'finding')}: the artifact would not work everywhere that its "
            "name promises",
            hint="each finding above says how to fix it",
        )
