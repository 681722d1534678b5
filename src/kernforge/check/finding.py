# SPDX-License-Identifier: Apache-2.0
"""A problem of an artifact, or of the machine, with its fix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from kernforge.errors import CheckError
from kernforge.system.tables import counted

Severity: TypeAlias = Literal["error", "warning", "skipped"]


class Problem(NamedTuple):
    """A message and a hint, without the place."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise, or one that could not be checked.

    Attributes:
        rule: the rule's name, such as ``manylinux``.
        where: the file, relative to the folder of variants.
        message: the problem and its effect.
        hint: the fix; for ``skipped``, the way to check it.
        severity: ``error`` breaks users, ``warning`` may, ``skipped`` was not checked.
    """

    rule: str
    where: str
    message: str
    hint: str
    severity: Severity = "error"

    def __str__(self) -> str:
        hint = f"\n    {self.hint}" if self.hint else ""
        return f"{self.severity}: {self.where}: {self.message} [{self.rule}]{hint}"


def refuse_errors(findings: Iterable[Finding]) -> None:
    """Refuse an artifact with findings that are errors."""
    count = sum(finding.severity == "error" for finding in findings)
    if count:
        raise CheckError(
            f"{counted(count, 'finding')}: the artifact would not work everywhere that its "
            "name promises",
            hint="see the hint below each finding",
        )
