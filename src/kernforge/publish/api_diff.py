# SPDX-License-Identifier: Apache-2.0
"""What changed for the users of a kernel from one version to the next, and what number that asks for.

The rules are those of semantic versioning (semver.org), applied to what a kernel promises:

- *major*: a machine that was served is served no more (a variant or device code for its GPU is
  gone), a public name or operator is gone, or a call that was right is wrong or means another thing;
- *minor*: there is something new to call, or a Python package more is needed;
- *patch*: all else.

Versions are compared machine by machine: for every kind of machine that some old variant served,
the variant that it loaded is held against the one that it would load now. Before 1.0.0 a minor
version may do what a major one does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from kernforge.artifact.variant import Backend, Variant
from kernforge.errors import UsageError
from kernforge.loader.facts import Host
from kernforge.loader.resolve import check_archs, resolve

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kernforge.source.python_api import Entry, Parameter

Version3: TypeAlias = tuple[int, int, int]

_NEWEST = (9, 99)
"""Stands for every version of torch that is yet to come."""
# Compute capabilities of CUDA devices, so that what a build serves can be counted (CUDA 13.0's list).
_CAPABILITIES = (
    *((5, 0), (5, 2), (5, 3), (6, 0), (6, 1), (6, 2), (7, 0), (7, 2), (7, 5)),
    *((8, 0), (8, 6), (8, 7), (8, 8), (8, 9), (9, 0), (10, 0), (10, 1), (10, 3)),
    *((11, 0), (12, 0), (12, 1)),
)


class Level(IntEnum):
    """What number a change asks for."""

    PATCH = 0
    MINOR = 1
    MAJOR = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What one variant offers.

    Attributes:
        name: the variant's.
        backend: as the metadata has it.
        archs: of its device code; None where nothing is said.
        api: public names of its package.
        ops: operators that its extension registers; None where the build did not record them.
        python_depends: Python packages that it needs.
    """

    name: str
    backend: str
    archs: tuple[str, ...] | None
    api: Mapping[str, Entry]
    ops: Mapping[str, Entry] | None
    python_depends: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Something that a user of the older version would notice.

    Attributes:
        level: the number that it asks for.
        what: a sentence.
        variants: the older version's variants whose users notice, sorted.
    """

    level: Level
    what: str
    variants: tuple[str, ...]


def compare(
    old: Sequence[Offer], new: Sequence[Offer], *, part: bool = False
) -> tuple[Change, ...]:
    """Every change, the gravest first.

    Args:
        old: the variants of the older version.
        new: those of the newer one.
        part: whether the rest of the newer version is still to come, so that a machine which
            nothing serves yet is no change.
    """
    offers = {offer.name: offer for offer in new}
    found: dict[tuple[Level, str], set[str]] = {}
    seen: set[tuple[str, str | None]] = set()
    before = {offer.name: offer for offer in old}
    for host in (host for name in before for host in _machines(name)):
        was, now = resolve(before, host).best, resolve(offers, host).best
        if was is None or (was.name, now.name if now else None) in seen:
            continue
        seen.add((was.name, now.name if now else None))
        if now:
            changes = tuple(_between(before[was.name], offers[now.name]))
        else:
            gone = (Level.MAJOR, f"nothing serves the machines of {was.name} any more")
            changes = () if part else (gone,)
        for change in changes:
            found.setdefault(change, set()).add(was.name)
    ranked = sorted(found.items(), key=lambda item: (-item[0][0], item[0][1]))
    return tuple(
        Change(level=level, what=what, variants=tuple(sorted(names)))
        for (level, what), names in ranked
    )


def unrecorded(offers: Iterable[Offer]) -> tuple[str, ...]:
    """The variants whose build did not record their operators, sorted."""
    return tuple(sorted(offer.name for offer in offers if offer.ops is None))


def level_of(changes: Iterable[Change], *, major: int = 1) -> Level:
    """The number that changes ask for together, in a major version."""
    level = max((change.level for change in changes), default=Level.PATCH)
    return min(level, Level.MINOR) if major == 0 else level


def step(old: Version3, new: Version3) -> Level:
    """Which number was raised from one version to a later one."""
    if new[0] != old[0]:
        return Level.MAJOR
    return Level.MINOR if new[1] != old[1] else Level.PATCH


def after(version: Version3, level: Level) -> Version3:
    """The next version that keeps the promise."""
    major, minor, patch = version
    if level is Level.MAJOR:
        return (major + 1, 0, 0)
    return (major, minor + 1, 0) if level is Level.MINOR else (major, minor, patch + 1)


def _machines(name: str) -> Iterator[Host]:
    """Machines at the ends of what a variant serves; none for what is no variant's name."""
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
        backends.append(Backend("cuda", (backend.version[0], _NEWEST[1])))
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
    yield from _archs(old, new)
    for name in sorted(set(new.python_depends) - set(old.python_depends)):
        yield Level.MINOR, f"the Python package {name} is needed"
    yield from _entries(old.api, new.api)
    if old.ops is not None and new.ops is not None:
        yield from _entries(old.ops, new.ops)


def _archs(old: Offer, new: Offer) -> Iterator[tuple[Level, str]]:
    if not old.archs or not new.archs or old.backend != new.backend:
        return
    lost = sorted(set(old.archs) - set(new.archs)) if old.backend == "rocm" else _lost(old, new)
    if lost:
        yield Level.MAJOR, f"there is no device code for {', '.join(lost)} any more"


def _lost(old: Offer, new: Offer) -> list[str]:
    """Compute capabilities that the old device code ran on and the new does not."""

    def runs(offer: Offer, capability: tuple[int, int]) -> bool:
        host = Host(cpu="", os="", backend=Backend("cuda"), capability=capability)
        return not check_archs("cuda", offer.archs, host)

    return [
        f"{major}.{minor}"
        for major, minor in _CAPABILITIES
        if runs(old, (major, minor)) and not runs(new, (major, minor))
    ]


def _entries(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[tuple[Level, str]]:
    for name in sorted({*old, *new}):
        parent = name.rpartition(".")[0]
        if name not in new:
            if parent not in old or parent in new:  # else the parent says it
                yield Level.MAJOR, f"{name} is gone"
        elif name not in old:
            if parent not in new or parent in old:
                yield Level.MINOR, f"{name} is new"
        elif old[name].kind != new[name].kind:
            yield Level.MAJOR, f"{name} is a {new[name].kind}, was a {old[name].kind}"
        else:
            for level, what in _signature(old[name], new[name]):
                yield level, f"{name}: {what}"


def _signature(old: Entry, new: Entry) -> Iterator[tuple[Level, str]]:
    if old.parameters is None or new.parameters is None:
        return
    theirs = {p.name: (place, p) for place, p in enumerate(new.parameters)}
    for place, was in enumerate(old.parameters):
        if was.passed == "by position":
            yield from _positional(place, was, new.parameters)
        elif was.name not in theirs:
            yield Level.MAJOR, f"parameter {was.name} is gone"
        else:
            now_at, now = theirs[was.name]
            both = {was.passed, now.passed} <= {"by position", "either way"}
            if both and place != now_at:
                yield Level.MAJOR, f"parameter {was.name} is number {now_at + 1}, was {place + 1}"
            yield from _parameter(was, now)
    known = {p.name for p in old.parameters}
    renamed = {i for i, p in enumerate(old.parameters) if p.passed == "by position"}
    for place, now in enumerate(new.parameters):
        if now.name in known or place in renamed:
            continue
        required = now.default is None and now.passed not in {"rest", "other names"}
        word = "new and required" if required else "new"
        yield Level.MAJOR if required else Level.MINOR, f"parameter {now.name} is {word}"
    if old.returns != new.returns:
        yield Level.MAJOR, f"it returns {new.returns or 'nothing'}, was {old.returns or 'nothing'}"


def _positional(
    place: int, was: Parameter, parameters: tuple[Parameter, ...]
) -> Iterator[tuple[Level, str]]:
    """A parameter without a name for callers: only its place counts."""
    if place >= len(parameters) or parameters[place].passed not in {"by position", "either way"}:
        yield Level.MAJOR, f"parameter number {place + 1} is gone"
    else:
        yield from _parameter(was, parameters[place])


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
