# SPDX-License-Identifier: Apache-2.0
"""Choose a commit for each kernel that an application requires, and for all that those depend on.

The dependencies of every variant are locked, so that the lock works on every machine. A locked
kernel stays at its commit until it is upgraded or no longer satisfies the requirement.
"""

from __future__ import annotations

import graphlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from kernforge.application import requirements
from kernforge.artifact.metadata import FILE, KernelDepend, Metadata
from kernforge.errors import RegistryError, UsageError
from kernforge.loader.lock import KernelLocks, Pin, Pins, depend_json, sort_key
from kernforge.registry.api import find, locked, refuse_moved
from kernforge.registry.base import Registries
from kernforge.registry.names import Request, request, versions
from kernforge.system.digest import sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousLock:
    """The lock that is to be updated.

    Attributes:
        pins: those of ``kernforge-kernels.lock``.
        locks: those of ``kernels.lock``, for a project that another tool locked.
        upgrade: repo ids to lock again; None locks all anew.
    """

    pins: Pins | None = None
    locks: KernelLocks | None = None
    upgrade: Collection[str] | None = ()

    def direct(self, dependency: Request) -> tuple[str, str | None] | None:
        """The commit to keep for one of the project's requirements, and its release if known."""
        if not self._stays(dependency.repo_id):
            return None
        for pin in self.pins.kernels if self.pins else ():
            if pin.asked is not None and pin.depend.repo_id == dependency.repo_id:
                same = pin.asked == requirements.asked(dependency)
                fits = pin.release and requirements.allows(dependency, pin.release)
                return (pin.commit, pin.release) if same or fits else None
        commit = self._locked(_depend(dependency, ""))
        return (commit, None) if commit else None

    def transitive(self, depend: KernelDepend) -> str | None:
        """The commit to keep for a dependency of another kernel."""
        if not self._stays(depend.repo_id):
            return None
        pinned = self.pins.kernels if self.pins else ()
        commit = next((pin.commit for pin in pinned if pin.depend == depend), None)
        return commit or self._locked(depend)

    def _stays(self, repo_id: str) -> bool:
        return self.upgrade is not None and repo_id not in self.upgrade

    def _locked(self, depend: KernelDepend) -> str | None:
        for kernel in self.locks.kernels if self.locks else ():
            if kernel.depend == depend:
                return kernel.commit
        return None


def choose_commits(registry: Registries, asked: Sequence[Request], before: PreviousLock) -> Pins:
    """Lock what a project requires.

    Raises:
        NotPublishedError: the registry lacks a kernel or version.
        RegistryError: kernels depend on each other in a cycle, or one has moved.
        UsageError: the project requires nothing, or does not require what is to be upgraded.
    """
    if not asked:
        raise UsageError(
            "there is nothing to lock: pyproject.toml has no [tool.kernels.dependencies]",
            hint='add it, with lines such as "owner/name" = 1',
        )
    pins: dict[KernelDepend, Pin] = {}
    graph: dict[KernelDepend, tuple[KernelDepend, ...]] = {}
    for dependency in asked:
        pin = _pin_direct(registry, dependency, before)
        pins[pin.depend] = pin
    pending = list(pins)
    while pending:
        depend = pending.pop()
        if depend not in pins:
            wanted = request(depend.repo_id, depend.version, depend.revision)
            commit = before.transitive(depend) or find(registry, wanted).commit
            pins[depend] = _pin(registry, depend, commit, None)
        pins[depend], graph[depend] = _read_variants(registry, pins[depend])
        pending += [below for below in graph[depend] if below not in graph]
    _refuse_cycles(graph)
    unknown = sorted(set(before.upgrade or ()) - {depend.repo_id for depend in pins})
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} cannot be upgraded: the project does not depend on it",
            hint="add it to [tool.kernels.dependencies], or leave it out",
        )
    return Pins(kernels=tuple(pins[depend] for depend in sorted(pins, key=sort_key)))


def lock_text(pins: Pins) -> str:
    """Text of ``kernels.lock`` as ``kernels`` 0.17 writes it."""
    entries = [
        {"dependency": depend_json(pin.depend), "lock": {"commit": pin.commit}}
        for pin in pins.kernels
    ]
    return json.dumps(entries, indent=2, ensure_ascii=False)


def lock_problems(
    asked: Sequence[Request], pins: Pins | None, locks: KernelLocks | None
) -> list[str]:
    """What is wrong with the files of a lock; empty when nothing is. No registry is used.

    Args:
        asked: what the project requires.
        pins: those of ``kernforge-kernels.lock``; None when another tool locked the project.
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
        return ["kernels.lock and kernforge-kernels.lock belong to two different locks"]
    direct = {pin.depend.repo_id: pin for pin in pins.kernels if pin.asked is not None}
    problems = []
    for repo_id, wanted in ((d.repo_id, requirements.asked(d)) for d in asked):
        if repo_id not in direct:
            problems.append(f"{repo_id} is not locked")
        elif (before := direct[repo_id].asked) != wanted:
            problems.append(f"{repo_id} is locked for {before}, the project requires {wanted}")
    gone = sorted(direct.keys() - {d.repo_id for d in asked})
    return [*problems, *(f"{name} is locked, the project does not require it" for name in gone)]


def _depend(dependency: Request, release: str) -> KernelDepend:
    """A requirement as ``kernels.lock`` has it, where a range is its release's major version."""
    repo_id, version = dependency.repo_id, dependency.version
    if version is None:
        return KernelDepend(repo_id=repo_id, revision=dependency.revision)
    if not dependency.is_branch_of_major:
        version = release.partition(".")[0] or "-1"
    return KernelDepend(repo_id=repo_id, version=int(version))


def _pin_direct(registry: Registries, dependency: Request, before: PreviousLock) -> Pin:
    # A tag moves when a farm adds variants to its version: what was locked then keeps its release.
    commit, release = before.direct(dependency) or (
        find(registry, dependency).commit,
        None,
    )
    release = _release(registry, dependency.repo_id, commit, dependency) or release
    depend = _depend(dependency, release or "")
    pin = _pin(registry, depend, commit, requirements.asked(dependency))
    return replace(pin, release=release)


def _pin(registry: Registries, depend: KernelDepend, commit: str, asked: str | None) -> Pin:
    release = _release(registry, depend.repo_id, commit, None)
    return Pin(depend=depend, commit=commit, asked=asked, release=release, metadata={})


def _release(
    registry: Registries, repo_id: str, commit: str, dependency: Request | None
) -> str | None:
    """The version that a commit was released as; of several the newest that satisfies."""
    refs = registry.member(repo_id).refs(repo_id)
    named = [tag[1:] for tag in versions(refs).values() if refs[tag] == commit]
    if dependency is not None and dependency.revision is None:
        named = [release for release in named if requirements.allows(dependency, release)]
    return named[-1] if named else None


def _read_variants(registry: Registries, pin: Pin) -> tuple[Pin, tuple[KernelDepend, ...]]:
    """The pin with the hashes of its variants' documents, and the kernels that those depend on."""
    depend, commit = pin.depend, pin.commit
    repo_id = depend.repo_id
    wanted = request(repo_id, depend.version, depend.revision)
    answer = locked(registry, wanted, commit)
    refuse_moved(answer)
    hashes: dict[str, str] = {}
    depends: dict[KernelDepend, None] = {}
    for name in answer.variants:
        document = answer.registry.metadata(repo_id, commit, name)
        metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}")
        hashes[name] = sha256(document)
        depends |= dict.fromkeys(metadata.kernel_depends)
    if not hashes:
        raise RegistryError(
            f"{repo_id} has no variant at commit {commit} in registry {registry.url}",
            hint=f"lock it again: kernforge lock --upgrade {repo_id}",
        )
    return replace(pin, metadata=hashes), tuple(depends)


def _refuse_cycles(graph: Mapping[KernelDepend, tuple[KernelDepend, ...]]) -> None:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        cycle = " -> ".join(depend.repo_id for depend in error.args[1])
        raise RegistryError(
            f"kernels depend on each other in a cycle: {cycle}",
            hint="remove one of them from kernel-depends",
        ) from None
