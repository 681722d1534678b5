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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2
from kernforge.errors import IntegrityError, UsageError
from kernforge.loader.host import Host
from kernforge.loader.resolve import check_archs, resolve
from kernforge.registry.base import Registry
from kernforge.registry.names import Version3
from kernforge.source import op_schema, python_api
from kernforge.source.python_api import ApiEntry, Parameter
from kernforge.toolchain.cuda_arch import CAPABILITIES

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
    sources = {
        path.relative_to(directory).as_posix(): path.read_text(errors="replace")
        for path in sorted(directory.rglob("*.py"))
    }
    return Offer(
        name=directory.name,
        backend=metadata.backend,
        archs=metadata.archs,
        api=python_api.read_package(sources),
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


def published(registry: Registry, repo_id: str, commit: str) -> tuple[Offer, ...]:
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

    def runs(offer: Offer, capability: Version2) -> bool:
        host = Host(cpu="", os="", backend=Backend("cuda"), capability=capability)
        return not check_archs("cuda", offer.archs, host)

    return [str(each) for each in CAPABILITIES if runs(old, each) and not runs(new, each)]


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
