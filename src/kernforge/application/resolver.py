# SPDX-License-Identifier: Apache-2.0
"""Choose a commit for each kernel that an application asks for, and for all that those depend on.

Whatever machine the application will run on, its variant's dependencies are locked: those of every
variant are followed. A kernel that is locked stays as it is until it is upgraded or no longer
within what is asked for.
"""

from __future__ import annotations

import graphlib
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import FILE, KernelDepend, Metadata
from kernforge.errors import RegistryError, UsageError
from kernforge.loader.pins import Pin, Pins, depend_json
from kernforge.loader.search import find_commit
from kernforge.registry import redirect
from kernforge.registry.names import versions
from kernforge.system.digest import sha256

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from kernforge.application.requirements import Dependency
    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.registry.api import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What was locked until now.

    Attributes:
        pins: our own file's.
        locks: those of ``kernels.lock``, for a project that another tool locked.
        upgrade: repo ids to lock anew; None locks all anew.
    """

    pins: Pins | None = None
    locks: KernelLocks | None = None
    upgrade: Collection[str] | None = ()

    def direct(self, dependency: Dependency) -> tuple[str, str | None] | None:
        """The commit to keep for what a project asks for, and its release where that is known."""
        if not self._stays(dependency.repo_id):
            return None
        for pin in self.pins.kernels if self.pins else ():
            if pin.asked is not None and pin.depend.repo_id == dependency.repo_id:
                same = pin.asked == dependency.asked
                fits = pin.release is not None and dependency.allows(pin.release)
                return (pin.commit, pin.release) if same or fits else None
        if dependency.bounds is not None:
            return None
        found = self._locked(
            KernelDepend(
                repo_id=dependency.repo_id,
                version=dependency.version,
                revision=dependency.revision,
            )
        )
        return (found, None) if found else None

    def transitive(self, depend: KernelDepend) -> str | None:
        """The commit to keep for what another kernel asks for."""
        if not self._stays(depend.repo_id):
            return None
        pinned = self.pins.kernels if self.pins else ()
        found = next((pin.commit for pin in pinned if pin.depend == depend), None)
        return found or self._locked(depend)

    def _stays(self, repo_id: str) -> bool:
        return self.upgrade is not None and repo_id not in self.upgrade

    def _locked(self, depend: KernelDepend) -> str | None:
        for kernel in self.locks.kernels if self.locks else ():
            old = self.locks is not None and self.locks.old
            if kernel.depend == depend or (old and kernel.depend.repo_id == depend.repo_id):
                return kernel.commit
        return None


def choose(registry: Registry, asked: Sequence[Dependency], before: Before) -> Pins:
    """Lock what a project asks for.

    Raises:
        NotPublishedError: the registry lacks a kernel or version.
        RegistryError: kernels depend on each other in a circle, or one has moved.
        UsageError: the project asks for nothing, or an upgrade is of what it does not ask for.
    """
    if not asked:
        raise UsageError(
            "there is nothing to lock: pyproject.toml has no [tool.kernels.dependencies]",
            hint='add it, with lines such as "owner/name" = 1',
        )
    found: dict[KernelDepend, Pin] = {}
    graph: dict[KernelDepend, tuple[KernelDepend, ...]] = {}
    for dependency in asked:
        pin = _direct(registry, dependency, before)
        found[pin.depend] = pin
    pending = list(found)
    while pending:
        depend = pending.pop()
        if depend not in found:
            commit = before.transitive(depend) or find_commit(
                registry, depend.repo_id, depend.version, depend.revision
            )
            found[depend] = _pin(registry, depend, commit, None)
        found[depend], graph[depend] = _read(registry, found[depend])
        pending += [below for below in graph[depend] if below not in graph]
    _refuse_circles(graph)
    unknown = sorted(set(before.upgrade or ()) - {depend.repo_id for depend in found})
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} cannot be upgraded: the project does not depend on it",
            hint="add it to [tool.kernels.dependencies], or leave it out",
        )
    return Pins(kernels=tuple(found[depend] for depend in sorted(found, key=_order)))


def kernels_lock(pins: Pins) -> str:
    """Text of ``kernels.lock`` as ``kernels`` 0.17 writes it."""
    entries = [
        {"dependency": depend_json(pin.depend), "lock": {"commit": pin.commit}}
        for pin in pins.kernels
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False)


def outdated(
    asked: Sequence[Dependency], pins: Pins | None, locks: KernelLocks | None
) -> list[str]:
    """What is wrong with the files of a lock, without asking any registry; nothing when all is well.

    Args:
        asked: what the project asks for.
        pins: our own file's; None when another tool locked the project.
        locks: those of ``kernels.lock``; None when there is none.
    """
    if locks is None:
        return ["there is no kernels.lock"] if asked else []
    if pins is None:
        locked = {kernel.depend.repo_id for kernel in locks.kernels}
        return [f"{d.repo_id} is not locked" for d in asked if d.repo_id not in locked]
    if {(k.depend, k.commit) for k in locks.kernels} != {
        (p.depend, p.commit) for p in pins.kernels
    }:
        return ["kernels.lock and kernforge-kernels.lock are of two different locks"]
    direct = {pin.depend.repo_id: pin for pin in pins.kernels if pin.asked is not None}
    problems = [
        f"{d.repo_id} is locked for {direct[d.repo_id].asked}, the project asks for {d.asked}"
        if d.repo_id in direct
        else f"{d.repo_id} is not locked"
        for d in asked
        if d.repo_id not in direct or direct[d.repo_id].asked != d.asked
    ]
    gone = sorted(direct.keys() - {d.repo_id for d in asked})
    return [*problems, *(f"{name} is locked, the project does not ask for it" for name in gone)]


def _direct(registry: Registry, dependency: Dependency, before: Before) -> Pin:
    version = dependency.version if dependency.bounds is None else dependency.bounds
    # A tag moves when a farm adds variants to its version: what was locked then keeps its release.
    commit, release = before.direct(dependency) or (
        find_commit(registry, dependency.repo_id, version, dependency.revision),
        None,
    )
    release = _release(registry, dependency.repo_id, commit, dependency) or release
    if dependency.revision is not None:
        depend = KernelDepend(repo_id=dependency.repo_id, revision=dependency.revision)
    elif dependency.version is not None:
        depend = KernelDepend(repo_id=dependency.repo_id, version=dependency.version)
    else:
        major = (release or "").partition(".")[0]
        depend = KernelDepend(repo_id=dependency.repo_id, version=int(major))
    return replace(_pin(registry, depend, commit, dependency.asked), release=release)


def _pin(registry: Registry, depend: KernelDepend, commit: str, asked: str | None) -> Pin:
    release = _release(registry, depend.repo_id, commit, None)
    return Pin(depend=depend, commit=commit, asked=asked, release=release, metadata={})


def _release(
    registry: Registry, repo_id: str, commit: str, dependency: Dependency | None
) -> str | None:
    """The version that a commit was released as; of several the newest that is asked for."""
    tags = versions(registry.ref_names(repo_id)).values()
    named = [tag[1:] for tag in tags if registry.ref(repo_id, tag) == commit]
    if dependency is not None and dependency.revision is None:
        named = [release for release in named if dependency.allows(release)]
    return named[-1] if named else None


def _read(registry: Registry, pin: Pin) -> tuple[Pin, tuple[KernelDepend, ...]]:
    """The pin with what its variants' documents hash to, and what those depend on."""
    repo_id, commit = pin.depend.repo_id, pin.commit
    _refuse_moved(registry, repo_id, commit)
    hashes: dict[str, str] = {}
    depends: dict[KernelDepend, None] = {}
    for name in registry.variants(repo_id, commit):
        document = registry.metadata(repo_id, commit, name)
        metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}")
        hashes[name] = sha256(document)
        depends |= dict.fromkeys(metadata.kernel_depends)
    if not hashes:
        raise RegistryError(
            f"{repo_id} has no variant at commit {commit} in registry {registry.url}",
            hint=f"lock it anew: kernforge lock --upgrade {repo_id}",
        )
    return replace(pin, metadata=hashes), tuple(depends)


def _refuse_moved(registry: Registry, repo_id: str, commit: str) -> None:
    status = registry.small_file(repo_id, commit, redirect.FILE)
    if status is not None:
        moved = redirect.parse(status, source=f"{repo_id}/{redirect.FILE}")
        raise RegistryError(
            f"kernel {repo_id} moved to {moved.repo_id} (revision {moved.revision})",
            hint="name that one in [tool.kernels.dependencies]: a lock follows no redirect",
        )


def _refuse_circles(graph: Mapping[KernelDepend, tuple[KernelDepend, ...]]) -> None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(depend.repo_id for depend in error.args[1])
        raise RegistryError(
            f"kernels depend on each other in a circle: {circle}",
            hint="remove one of them from kernel-depends",
        ) from None


def _order(depend: KernelDepend) -> tuple[str, bool, int, str]:
    return depend.repo_id, depend.version is None, depend.version or 0, depend.revision or ""
