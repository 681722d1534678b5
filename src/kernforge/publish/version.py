# SPDX-License-Identifier: Apache-2.0
"""The version number of a publication, from the changes since the version before it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernforge.errors import RegistryError
from kernforge.publish import api_diff
from kernforge.publish.api_diff import ApiChange, Level, Offer
from kernforge.registry.names import Version3, dotted

Tree: TypeAlias = Mapping[str, str]
"""Hex SHA-256 of the files of a commit, by path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChoice:
    """The version number of a publication.

    Attributes:
        since: the version that it was compared with; None for the first of a major version, and
            for a published one.
        unrecorded: variants whose operators were not compared: their build did not record them.
    """

    version: Version3
    since: Version3 | None = None
    changes: tuple[ApiChange, ...] = ()
    unrecorded: tuple[str, ...] = ()


def variants_of(tree: Tree) -> Tree:
    """The files of variants among those of a commit."""
    return {p: digest for p, digest in tree.items() if p.startswith("build/") and p.count("/") > 1}


def choose_version(
    published: Collection[Version3],
    built: Tree,
    offered: Sequence[Offer],
    *,
    variants: Callable[[Version3], Tree],
    offers: Callable[[Version3], Sequence[Offer]],
    major: int,
    requested: Version3 | None = None,
) -> VersionChoice:
    """Choose the version number of a publication; a published version never changes.

    Args:
        built: the files of the variants.
        offered: the offers of the variants.
        variants: returns the files of a published version's variants.
        offers: returns the offers of those variants.
        requested: the version that the user named; None takes the newest one if it has exactly
            these variants, and else the next number that the changes allow.
    """
    of_major = [version for version in published if version[0] == major]
    same = (
        requested if requested in of_major else None if requested else max(of_major, default=None)
    )
    if same is not None:
        before = variants(same)
        if before == built:
            return VersionChoice(version=same)
        if requested:
            raise _published(requested, before, built)
    since = max((v for v in of_major if not requested or v < requested), default=None)
    if since is None:
        return VersionChoice(version=requested or (major, 0, 0))
    old = tuple(offers(since))
    changes = api_diff.compare(old, offered)
    level = api_diff.level_of(changes, major=major)
    target = requested or api_diff.after(since, level)
    if level > api_diff.step(since, target) or level is Level.MAJOR:
        raise _too_low(since, requested, level, changes)
    return VersionChoice(
        version=target,
        since=since,
        changes=changes,
        unrecorded=tuple(sorted(each.name for each in (*old, *offered) if each.ops is None)),
    )


def _published(version: Version3, before: Tree, built: Tree) -> RegistryError:
    paths = [path for path in {*before, *built} if before.get(path) != built.get(path)]
    differing = sorted({path.split("/")[1] for path in paths})
    return RegistryError(
        f"version {dotted(version)} is published, and these variants differ: "
        f"{', '.join(differing)}",
        hint="a published version never changes: publish the next one, with all variants together",
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
            f"the next version is {next_version}: set version = {since[0] + 1} in build.toml and "
            "build again; or restore what was removed"
        )
        if any("have no variant" in change.what for change in highest):
            hint += (
                "; or publish the missing variants with these: kernforge publish build OTHER/build"
            )
    else:
        hint = f"publish as {next_version}"
    return RegistryError(
        f"{subject} {dotted(since)}: this is a {level} change:\n  {listing}", hint=hint
    )
