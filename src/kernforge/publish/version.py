# SPDX-License-Identifier: Apache-2.0
"""The changes for users between two versions of a kernel, and the version number that they require.

The rules are those of semantic versioning (semver.org), applied to a kernel:

- *major*: a machine has no variant any more (a variant or the device code for its GPU was removed),
  a public name or operator was removed, or a valid call became invalid or has another meaning;
- *minor*: there is a new name to call, or another Python package is needed;
- *patch*: everything else.

Versions are compared by machines: for every kind of machine that an old variant runs on, the
variant that it loaded is compared with the variant that it would load now. Before 1.0.0, a minor
version may have the changes of a major version.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TypeAlias

from kernforge.artifact.directories import link_root
from kernforge.artifact.gpu import CAPABILITIES, runs
from kernforge.artifact.integrity import read_file, tree_files
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, RegistryError, UsageError
from kernforge.loader.host import Host
from kernforge.loader.resolve import resolve
from kernforge.registry.directory import Registry
from kernforge.registry.names import Version3, dotted
from kernforge.source import op_schema, python_api
from kernforge.source.python_api import ApiEntry, Parameter

_NEWEST = Version2(9, 99)  # stands for every future version of torch
_POSITIONAL = {"by position", "either way"}


class Level(IntEnum):
    """The part of the version number that a change raises."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The public names and operators of a variant, and the machines that it runs on.

    Attributes:
        archs: architectures of the device code; None if the metadata has none.
        ops: operators that the extension registers; None if the build did not record them.
    """

    name: str
    backend: str
    archs: tuple[str, ...] | None
    api: Mapping[str, ApiEntry]
    ops: Mapping[str, ApiEntry] | None
    python_depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiChange:
    """A change that a user of the older version notices.

    Attributes:
        variants: variants of the older version whose users notice the change, sorted.
    """

    level: Level
    what: str
    variants: tuple[str, ...]


def offer(directory: Path, metadata: Metadata) -> Offer:
    """Read a variant's public names and operators, without an import."""
    root = link_root(directory)
    sources = {
        name: read_file(path, within=root).decode(errors="replace")
        for name, path in tree_files(directory, within=root).items()
        if name.endswith(".py")
    }
    return Offer(
        name=directory.name,
        backend=metadata.backend,
        archs=metadata.archs,
        api=python_api.read_untrusted_package(sources),
        ops=_operators(directory.name, metadata),
        python_depends=metadata.python_depends,
    )


def _operators(name: str, metadata: Metadata) -> Mapping[str, ApiEntry] | None:
    recorded = metadata.provenance.kernforge.get("ops") if metadata.provenance else None
    if recorded is None:
        return {} if Variant.parse(name).is_noarch else None
    if not isinstance(recorded, list) or not all(isinstance(text, str) for text in recorded):
        raise IntegrityError(
            f"{name}/{FILE}: 'ops' is not a list of operator schemas", hint="build the kernel again"
        )
    return op_schema.read_operators(recorded)


def published_offers(registry: Registry, repo_id: str, commit: str) -> tuple[Offer, ...]:
    """Read the offers of every variant of a published version."""
    return tuple(
        offer(
            registry.fetch(repo_id, commit, name),
            Metadata.from_json(
                registry.metadata(repo_id, commit, name), source=f"{repo_id}/build/{name}/{FILE}"
            ),
        )
        for name in registry.variants(repo_id, commit)
    )


def compare(old: Sequence[Offer], new: Sequence[Offer]) -> tuple[ApiChange, ...]:
    """Every change, those of the highest level first."""
    offers = {offer.name: offer for offer in new}
    names_of: dict[tuple[Level, str], set[str]] = {}
    seen: set[tuple[str, str | None]] = set()
    old_offers = {offer.name: offer for offer in old}
    for host in (host for name in old_offers for host in _machines(name)):
        was, now = resolve(old_offers, host).best, resolve(offers, host).best
        if was is None or (was.name, now.name if now else None) in seen:
            continue
        seen.add((was.name, now.name if now else None))
        if now:
            changes = tuple(_between(old_offers[was.name], offers[now.name]))
        else:
            changes = ((Level.MAJOR, f"the machines of {was.name} have no variant any more"),)
        for change in changes:
            names_of.setdefault(change, set()).add(was.name)
    ranked = sorted(names_of.items(), key=lambda item: (-item[0][0], item[0][1]))
    return tuple(
        ApiChange(level=level, what=what, variants=tuple(sorted(names)))
        for (level, what), names in ranked
    )


def level_of(changes: Iterable[ApiChange], *, major: int = 1) -> Level:
    """The part of the version number that changes raise together, in a major version."""
    level = max((change.level for change in changes), default=Level.PATCH)
    return min(level, Level.MINOR) if major == 0 else level


def step(old: Version3, new: Version3) -> Level:
    """The part of the number that was raised from one version to a later one."""
    if new[0] != old[0]:
        return Level.MAJOR
    return Level.MINOR if new[1] != old[1] else Level.PATCH


def after(version: Version3, level: Level) -> Version3:
    """The next version of a level."""
    major, minor, patch = version
    if level is Level.MAJOR:
        return (major + 1, 0, 0)
    return (major, minor + 1, 0) if level is Level.MINOR else (major, minor, patch + 1)


def _machines(name: str) -> Iterator[Host]:
    """The oldest and newest machines that a variant runs on; none for an invalid variant name."""
    try:
        variant = Variant.parse(name)
    except UsageError:
        return
    backend, version = variant.backend, variant.version
    if variant.is_noarch:
        known = {"npu": "cann", "universal": "cpu"}.get(backend.name, backend.name)
        yield Host(cpu="", os="", backend=Backend(known))
        return
    torches = [version, _NEWEST] if variant.framework == "torch-stable-abi" else [version]
    backends = [backend]
    if backend.name == "cuda" and backend.version:
        backends.append(Backend("cuda", Version2(backend.version.major, _NEWEST.minor)))
    for torch in torches:
        for runtime in backends:
            yield Host(
                cpu=variant.cpu,
                os=variant.os,
                backend=runtime,
                torch=None if variant.framework == "tvm-ffi" else torch,
                cxx11=True if variant.cxx11 is None else variant.cxx11,
                tvm_ffi=version if variant.framework == "tvm-ffi" else None,
                macos=_NEWEST if variant.os == "darwin" else None,
            )


def _between(old: Offer, new: Offer) -> Iterator[tuple[Level, str]]:
    if lost := _lost_capabilities(old, new):
        yield Level.MAJOR, f"there is no device code for {', '.join(lost)} any more"
    for name in sorted(set(new.python_depends) - set(old.python_depends)):
        yield Level.MINOR, f"the Python package {name} is needed"
    yield from _entries(old.api, new.api)
    if old.ops is not None and new.ops is not None:
        yield from _entries(old.ops, new.ops)


def _lost_capabilities(old: Offer, new: Offer) -> list[str]:
    """Compute capabilities that the old device code runs on and the new does not."""
    if not old.archs or not new.archs or {old.backend, new.backend} != {"cuda"}:
        return []
    lost = [gpu for gpu in CAPABILITIES if runs(old.archs, gpu) and not runs(new.archs, gpu)]
    return [str(gpu) for gpu in lost]


def _entries(
    old: Mapping[str, ApiEntry], new: Mapping[str, ApiEntry]
) -> Iterator[tuple[Level, str]]:
    for name in sorted({*old, *new}):
        parent = name.rpartition(".")[0]
        if name not in new:
            if parent not in old or parent in new:  # else the parent is reported
                yield Level.MAJOR, f"{name} is removed"
        elif name not in old:
            if parent not in new or parent in old:
                yield Level.MINOR, f"{name} is new"
        elif old[name].kind != new[name].kind:
            yield Level.MAJOR, f"{name} is a {new[name].kind}, was a {old[name].kind}"
        else:
            for level, what in _signature(old[name], new[name]):
                yield level, f"{name}: {what}"


def _signature(old: ApiEntry, new: ApiEntry) -> Iterator[tuple[Level, str]]:
    if old.parameters is None or new.parameters is None:
        return
    matched = set()
    for index, was in enumerate(old.parameters):
        now_at = _counterpart(index, was, new.parameters)
        if now_at is None:
            name = f"number {index + 1}" if was.passed == "by position" else was.name
            yield Level.MAJOR, f"parameter {name} is removed"
            continue
        matched.add(now_at)
        now = new.parameters[now_at]
        if {was.passed, now.passed} <= _POSITIONAL and index != now_at:
            yield Level.MAJOR, f"parameter {was.name} is number {now_at + 1}, was {index + 1}"
        yield from _parameter(was, now)
    for index, now in enumerate(new.parameters):
        if index not in matched:
            required = now.default is None and now.passed not in {"rest", "other names"}
            level, word = (Level.MAJOR, " and required") if required else (Level.MINOR, "")
            yield level, f"parameter {now.name} is new{word}"
    if old.returns != new.returns:
        yield Level.MAJOR, f"it returns {new.returns or 'nothing'}, was {old.returns or 'nothing'}"


def _counterpart(index: int, was: Parameter, parameters: tuple[Parameter, ...]) -> int | None:
    """The position of a parameter in the newer signature: by its name, if callers can give it."""
    if was.passed == "by position":
        stays = index < len(parameters) and parameters[index].passed in _POSITIONAL
        return index if stays else None
    return next((i for i, now in enumerate(parameters) if now.name == was.name), None)


def _parameter(was: Parameter, now: Parameter) -> Iterator[tuple[Level, str]]:
    name = was.name
    if now.passed not in {was.passed, "either way"}:
        yield Level.MAJOR, f"parameter {name} is given {now.passed}, was {was.passed}"
    if was.type != now.type:
        yield Level.MAJOR, f"parameter {name} is {now.type}, was {was.type}"
    if was.default == now.default:
        return
    if now.default is None:
        yield Level.MAJOR, f"parameter {name} is required, was {was.default} by default"
    elif was.default is None:
        yield Level.MINOR, f"parameter {name} is {now.default} by default, was required"
    else:
        yield Level.MAJOR, f"parameter {name} is {now.default} by default, was {was.default}"


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
    changes = compare(old, offered)
    level = level_of(changes, major=major)
    target = requested or after(since, level)
    if level > step(since, target) or level is Level.MAJOR:
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
    next_version = dotted(after(since, level))
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
