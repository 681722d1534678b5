# SPDX-License-Identifier: Apache-2.0
"""Which version a publication becomes, so that its number promises no more than it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import RegistryError
from kernforge.publish import api_diff
from kernforge.publish.api_diff import Change, Level, Version3

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kernforge.publish.api_diff import Offer

    Contents: TypeAlias = Mapping[str, Mapping[str, str]]
    """Variant name, to path in it, to hex SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A version to publish as.

    Attributes:
        version: its number.
        contents: all that it shall hold.
        since: the version that it was held against; None when it is the first of its major one,
            or nothing is new.
        changes: what its users will notice.
        unrecorded: variants whose operators could not be compared, since their build did not
            record them.
    """

    version: Version3
    contents: Contents
    since: Version3 | None = None
    changes: tuple[Change, ...] = ()
    unrecorded: tuple[str, ...] = ()


def choose(
    published: Mapping[Version3, Contents],
    contents: Contents,
    mine: Sequence[Offer],
    offers: Callable[[Version3], Sequence[Offer]],
    *,
    major: int,
    wanted: Version3 | None = None,
    part: bool = False,
) -> Choice:
    """The version to publish as, and all that it shall hold.

    Args:
        published: what each published version holds.
        contents: the variants to publish.
        mine: what those offer.
        offers: what the variants of a published version offer.
        major: the major version of the build.
        wanted: the version that the user asks for; None takes the next right one.
        part: whether other machines publish the rest of the version.

    Raises:
        RegistryError: the wanted version holds other bytes for a variant, or promises more than
            the variants keep.
    """
    newest = max((v for v in published if v[0] == major), default=None)
    target = wanted or newest or (major, 0, 0)
    held = published.get(target, {})
    differing = sorted(name for name in contents if name in held and held[name] != contents[name])
    if differing and wanted:
        raise RegistryError(
            f"version {dotted(wanted)} is published with other bytes for {', '.join(differing)}",
            hint="a version never changes what it holds: publish the next one",
        )
    whole = contents if differing else {**held, **contents}
    if not differing and whole == held:
        return Choice(version=target, contents=whole)
    since = (
        newest if differing else max((v for v in _of(published, major) if v < target), default=None)
    )
    if since is None:
        return Choice(version=target, contents=whole)
    added = {offer.name for offer in mine}
    kept = () if differing else tuple(o for o in _held(offers, target, held) if o.name not in added)
    before = tuple(offers(since))
    changes = api_diff.compare(before, (*kept, *mine), part=part)
    level = api_diff.level_of(changes, major=major)
    if differing and level < Level.MAJOR:
        target = api_diff.after(since, level)
    elif level > api_diff.step(since, target) or differing:
        raise _broken(since, None if differing else target, level, changes)
    return Choice(
        version=target,
        contents=whole,
        since=since,
        changes=changes,
        unrecorded=api_diff.unrecorded((*before, *mine)),
    )


def dotted(version: Version3) -> str:
    """The number as people write it."""
    return ".".join(map(str, version))


def _of(published: Mapping[Version3, Contents], major: int) -> list[Version3]:
    return [version for version in published if version[0] == major]


def _held(
    offers: Callable[[Version3], Sequence[Offer]], target: Version3, held: Contents
) -> Sequence[Offer]:
    return offers(target) if held else ()


def _broken(
    since: Version3, target: Version3 | None, level: Level, changes: Sequence[Change]
) -> RegistryError:
    grave = [change for change in changes if change.level == max(c.level for c in changes)]
    listing = "\n  ".join(f"{change.what} ({', '.join(change.variants)})" for change in grave)
    right = dotted(api_diff.after(since, level))
    asked = f"{dotted(target)} cannot follow" if target else f"version {since[0]} ends with"
    if level is Level.MAJOR:
        advice = (
            f"the next version is {right}: set version = {since[0] + 1} in build.toml and build "
            "again; or give back what is gone"
        )
        if any("serves the machines" in change.what for change in grave):
            advice += "; or pass --part if other machines publish the missing variants"
    else:
        advice = f"publish as {right}"
    return RegistryError(
        f"{asked} {dotted(since)}, this is a {level} change:\n  {listing}", hint=advice
    )
