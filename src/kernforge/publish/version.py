# SPDX-License-Identifier: Apache-2.0
"""The version number of a publication, from the changes since the version before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import RegistryError
from kernforge.publish import api_diff
from kernforge.publish.api_diff import ApiChange, Level
from kernforge.registry.names import dotted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernforge.publish.api_diff import Offer
    from kernforge.registry.names import Version3

    Contents: TypeAlias = Mapping[str, Mapping[str, str]]
    """Hex SHA-256 by path in the variant, by variant name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChoice:
    """The version number and the contents of a publication.

    Attributes:
        since: the version that it was compared with; None if it is the first of its major version,
            or if nothing is new.
        unrecorded: variants whose operators were not compared, because their build did not
            record them.
    """

    version: Version3
    contents: Contents
    since: Version3 | None = None
    changes: tuple[ApiChange, ...] = ()
    unrecorded: tuple[str, ...] = ()


def choose_version(
    published: Mapping[Version3, Contents],
    contents: Contents,
    offered: Sequence[Offer],
    offers: Callable[[Version3], Sequence[Offer]],
    *,
    major: int,
    wanted: Version3 | None = None,
    part: bool = False,
) -> VersionChoice:
    """Choose the version number of a publication, and all variants of the version.

    Args:
        offers: gives what the variants of a published version offer.
        wanted: the version that the user asks for; None takes the next number that the changes
            allow.
        part: whether other machines publish the rest of the version.

    Raises:
        RegistryError: the wanted version is published with other bytes for a variant, or its
            number is too low for the changes.
    """
    of_major = [version for version in published if version[0] == major]
    newest = max(of_major, default=None)
    target = wanted or newest or (major, 0, 0)
    existing = published.get(target, {})
    differing = sorted(
        name for name in contents if name in existing and existing[name] != contents[name]
    )
    if differing and wanted:
        raise RegistryError(
            f"version {dotted(wanted)} is published with other bytes for {', '.join(differing)}",
            hint="a published variant cannot change: publish the next version",
        )
    complete = contents if differing else {**existing, **contents}
    if not differing and complete == existing:
        return VersionChoice(version=target, contents=complete)
    since = newest if differing else max((v for v in of_major if v < target), default=None)
    if since is None:
        return VersionChoice(version=target, contents=complete)
    held = offers(target) if existing and not differing else ()
    added = {offer.name for offer in offered}
    kept = [offer for offer in held if offer.name not in added]
    before = tuple(offers(since))
    changes = api_diff.compare(before, (*kept, *offered), part=part)
    level = api_diff.level_of(changes, major=major)
    if differing and level < Level.MAJOR:
        target = api_diff.after(since, level)
    elif level > api_diff.step(since, target) or differing:
        raise _too_low(since, None if differing else target, level, changes)
    return VersionChoice(
        version=target,
        contents=complete,
        since=since,
        changes=changes,
        unrecorded=api_diff.unrecorded((*before, *offered)),
    )


def _too_low(
    since: Version3, target: Version3 | None, level: Level, changes: Sequence[ApiChange]
) -> RegistryError:
    highest = [change for change in changes if change.level == max(c.level for c in changes)]
    listing = "\n  ".join(f"{change.what} ({', '.join(change.variants)})" for change in highest)
    next_version = dotted(api_diff.after(since, level))
    subject = f"{dotted(target)} cannot follow" if target else f"version {since[0]} ends with"
    if level is Level.MAJOR:
        hint = (
            f"the next version is {next_version}: set version = {since[0] + 1} in build.toml and build "
            "again; or restore what was removed"
        )
        if any("have no variant" in change.what for change in highest):
            hint += "; or pass --part if other machines publish the missing variants"
    else:
        hint = f"publish as {next_version}"
    return RegistryError(
        f"{subject} {dotted(since)}: this is a {level} change:\n  {listing}", hint=hint
    )
