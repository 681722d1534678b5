# SPDX-License-Identifier: Apache-2.0
"""What a check has to say about an artifact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Severity: TypeAlias = Literal["error", "warning", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken promise, or one that could not be checked.

    Attributes:
        rule: the rule's name, as in ``floor``.
        severity: ``error`` breaks users, ``warning`` may, ``skipped`` was not checked.
        where: the file, relative to the folder of variants.
        message: what is wrong, where it breaks.
        hint: how to mend it; for ``skipped`` how to have it checked.
    """

    rule: str
    severity: Severity
    where: str
    message: str
    hint: str
