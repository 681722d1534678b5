# SPDX-License-Identifier: Apache-2.0
"""Branches to publish to that are not a version's: their names, and what changes on one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.registry.names import COMMIT, REF, majors, versions
from kernforge.trust.releases import BRANCH as RELEASES

if TYPE_CHECKING:
    from kernforge.publish.version import Contents

PUBLISHING = "publishing-"
"""Begins the name of a branch on which a publication is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchChange:
    """What a publication makes of a branch.

    Attributes:
        contents: all variants of the branch after it.
        added: variants that the branch lacked.
        replaced: variants that it had with other bytes.
        kept: variants that it has and that are not of this publication.
    """

    contents: Contents
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def change(before: Contents | None, built: Contents) -> BranchChange:
    """What publishing these variants makes of a branch; ``before`` is None if it does not exist."""
    existing = before or {}
    return BranchChange(
        contents={**existing, **built},
        added=tuple(sorted(built.keys() - existing.keys())),
        replaced=tuple(
            sorted(n for n, paths in built.items() if n in existing and existing[n] != paths)
        ),
        kept=tuple(sorted(existing.keys() - built.keys())),
    )


def check_name(branch: str, *, major: int) -> None:
    """Refuse a name that is not a branch's, or that means something else in a registry.

    Args:
        major: the major version of the build, whose branch is ``v<major>``.
    """
    parts = branch.split("/")
    wrong = (
        not REF.fullmatch(branch)
        or branch.startswith("-")
        or ".." in branch
        or any(not part or part.endswith((".", ".lock")) for part in parts)
    )
    reason = ""
    if wrong:
        reason = "is not the name of a branch"
    elif versions([branch]):
        reason = "is the name of a version's tag"
    elif majors([branch]) and majors([branch]) != (major,):
        reason = f"is the branch of another major version: version is {major} in this build"
    elif branch == RELEASES or branch.startswith(PUBLISHING) or COMMIT.fullmatch(branch):
        reason = "has a meaning of its own in a registry"
    if reason:
        raise UsageError(
            f"the branch {branch!r} {reason}",
            hint=f"give a name such as dev, or v{major} to publish a version "
            "(--branch, or branch in [general.hub])",
        )
