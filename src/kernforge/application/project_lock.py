# SPDX-License-Identifier: Apache-2.0
"""The kernels that an application requires, and their lock: choose commits, write it, compare it.

The dependencies of every variant are locked, so that the lock works on every machine. A locked
kernel stays at its commit until it is upgraded or no longer satisfies the requirement.

The requirements are ``[tool.kernels.dependencies]`` of pyproject.toml. A whole number is a major
version, as in the ``kernels`` client. Beyond that client's table, a string bounds the version
(PEP 440), and a table names a revision::

    [tool.kernels.dependencies]
    "owner/relu" = 1
    "owner/norm" = ">=1.2,<2"
    "owner/test" = { revision = "main" }
"""

from __future__ import annotations

import graphlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernforge.artifact.metadata import FILE as METADATA, KernelDepend, Metadata
from kernforge.errors import CheckError, MissingLockError, RegistryError, RequestError, UsageError
from kernforge.loader import lock as locks
from kernforge.loader.lock import FILE, PINS_FILE, KernelLocks, Pin, pins_text, sort_key
from kernforge.registry.api import find, locked, refuse_moved
from kernforge.registry.directory import Registries
from kernforge.registry.names import Request, request, versions
from kernforge.system import files, untrusted
from kernforge.system.digest import sha256

NAMES = (FILE, PINS_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A project that requires kernels.

    Attributes:
        package: the package that gets a copy of the lock, as [tool.kernforge.lock] names it,
            relative to the project; None for none.
    """

    root: Path
    required: tuple[Request, ...]
    package: str | None
    locks: KernelLocks | None

    @property
    def directories(self) -> list[Path]:
        """The directories of the lock's copies, the project's own first."""
        return [self.root, *([self.root / self.package] if self.package else [])]


def read(root: Path) -> Application:
    """Read a project and its lock."""
    path = root / PYPROJECT
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path} is missing", hint="name the directory of a project that requires kernels"
        ) from None
    document = load_document(text, source=str(path))
    try:
        present = locks.read(root / FILE)
    except MissingLockError:
        present = None
    return Application(
        root=root,
        required=read_dependencies(document, source=str(path)),
        package=_package(document, root),
        locks=present,
    )


def lock(
    application: Application, registry: Registries, *, upgrade: Collection[str] | None = ()
) -> tuple[Pin, ...]:
    """Lock a project's kernels and write the files.

    Args:
        upgrade: repo ids to lock again; None locks all anew.
    """
    pins = _choose_commits(application, registry, upgrade)
    for directory in application.directories:
        for name, text in zip(NAMES, (lock_text(pins), pins_text(pins)), strict=True):
            if _read_bytes(directory / name) != text.encode():
                files.write_atomic(directory / name, text)
    return pins


def lock_text(pins: Collection[Pin]) -> str:
    """Text of ``kernels.lock`` as ``kernels`` 0.17 writes it."""
    entries = [{"dependency": pin.depend.to_json(), "lock": {"commit": pin.commit}} for pin in pins]
    return json.dumps(entries, indent=2, ensure_ascii=False)


def check(application: Application) -> None:
    """Compare the lock with its project; no registry is used."""
    problems = _problems(application.required, application.locks)
    problems += [
        f"{directory / name} is not the project's lock"
        for directory in application.directories[1:]
        for name in NAMES
        if _read_bytes(directory / name) != _read_bytes(application.root / name)
    ]
    if problems:
        listing = "\n  ".join(problems)
        raise CheckError(
            f"the lock of {application.root} is out of date:\n  {listing}",
            hint="run kernforge lock, and commit the files that it writes",
        )


def _problems(required: Collection[Request], present: KernelLocks | None) -> list[str]:
    if present is None:
        return [f"there is no {FILE}"] if required else []
    names = {each.repo_id for each in required}
    if present.pins is None:  # another tool locked the project
        locked_names = {kernel.depend.repo_id for kernel in present.kernels}
        return [f"{name} is not locked" for name in sorted(names - locked_names)]
    pins = present.pins
    if {(k.depend, k.commit) for k in present.kernels} != {(p.depend, p.commit) for p in pins}:
        return [f"{FILE} and {PINS_FILE} belong to two different locks"]
    direct = {pin.depend.repo_id: pin.asked for pin in pins if pin.asked is not None}
    problems = []
    for each in required:
        before, now = direct.get(each.repo_id), as_text(each)
        if before is None:
            problems.append(f"{each.repo_id} is not locked")
        elif before != now:
            problems.append(f"{each.repo_id} is locked for {before}, the project requires {now}")
    extra = sorted(direct.keys() - names)
    return [*problems, *(f"{name} is locked, the project does not require it" for name in extra)]


def _package(document: dict[str, Any], root: Path) -> str | None:
    """The package that ``[tool.kernforge.lock]`` names."""
    table: Any = document
    for key in ("tool", "kernforge", "lock"):
        table = table.get(key) if isinstance(table, dict) else None
    package = table.get("package") if isinstance(table, dict) else None
    if package is None:
        return None
    inside = isinstance(package, str) and (root / package).resolve().is_relative_to(root.resolve())
    if not inside or not (root / package / "__init__.py").is_file():
        raise UsageError(
            f"pyproject.toml: [tool.kernforge.lock] package is {package!r}, which is not a package",
            hint='name a directory with __init__.py, relative to the project: "src/app"',
        )
    return str(package)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _choose_commits(
    application: Application, registry: Registries, upgrade: Collection[str] | None
) -> tuple[Pin, ...]:
    if not application.required:
        raise UsageError(
            "there is nothing to lock: pyproject.toml has no [tool.kernels.dependencies]",
            hint='add it, with lines such as "owner/name" = 1',
        )
    # The locked kernels that stay unless a requirement changed.
    stable: list[Pin] = []
    if application.locks is not None and upgrade is not None:
        locks = application.locks
        known = locks.kernels if locks.pins is None else locks.pins
        stable = [pin for pin in known if pin.depend.repo_id not in upgrade]
    pins: dict[KernelDepend, Pin] = {}
    graph: dict[KernelDepend, tuple[KernelDepend, ...]] = {}
    for dependency in application.required:
        pin = _pin(registry, dependency, stable)
        pins[pin.depend] = pin
    pending = list(pins)
    while pending:
        depend = pending.pop()
        if depend not in pins:
            commit = next((pin.commit for pin in stable if pin.depend == depend), None)
            if commit is None:
                wanted = request(depend.repo_id, depend.version, depend.revision)
                commit = find(registry, wanted).commit
            release = _release(registry, depend.repo_id, commit, None)
            pins[depend] = Pin(depend=depend, commit=commit, release=release)
        pins[depend], graph[depend] = _read_variants(registry, pins[depend])
        pending += [below for below in graph[depend] if below not in graph]
    _refuse_cycles(graph)
    unknown = sorted(set(upgrade or ()) - {depend.repo_id for depend in pins})
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)} cannot be upgraded: the project does not depend on it",
            hint="add it to [tool.kernels.dependencies], or leave it out",
        )
    return tuple(pins[depend] for depend in sorted(pins, key=sort_key))


def _pin(registry: Registries, dependency: Request, stable: Collection[Pin]) -> Pin:
    """The pin of a requirement of the project, at its locked commit if that still satisfies it."""
    repo_id, asked = dependency.repo_id, as_text(dependency)
    before = next((pin for pin in stable if pin.depend.repo_id == repo_id and pin.asked), None)
    if before is not None:
        allowed = before.release and allows(dependency, before.release)
        before = before if before.asked == asked or allowed else None
    else:
        depend = _depend(dependency, "")
        before = next((pin for pin in stable if pin.depend == depend), None)
    commit = before.commit if before else find(registry, dependency).commit
    release = _release(registry, repo_id, commit, dependency) or (
        before.release if before else None
    )
    return Pin(
        depend=_depend(dependency, release or ""), commit=commit, asked=asked, release=release
    )


def _depend(dependency: Request, release: str) -> KernelDepend:
    """A requirement as ``kernels.lock`` has it, where a range is its release's major version."""
    repo_id, version = dependency.repo_id, dependency.version
    if version is None:
        return KernelDepend(repo_id=repo_id, revision=dependency.revision)
    if not dependency.is_branch_of_major:
        version = release.partition(".")[0] or "-1"
    return KernelDepend(repo_id=repo_id, version=int(version))


def _release(
    registry: Registries, repo_id: str, commit: str, dependency: Request | None
) -> str | None:
    """The version that a commit was released as; of several the newest that satisfies."""
    refs = registry.member(repo_id).refs(repo_id)
    named = [tag[1:] for tag in versions(refs).values() if refs[tag] == commit]
    if dependency is not None and dependency.revision is None:
        named = [release for release in named if allows(dependency, release)]
    return named[-1] if named else None


def _read_variants(registry: Registries, pin: Pin) -> tuple[Pin, tuple[KernelDepend, ...]]:
    """The pin with the hashes of its variants' metadata, and the kernels that those depend on."""
    repo_id, commit = pin.depend.repo_id, pin.commit
    answer = locked(registry, pin.request, commit)
    refuse_moved(answer)
    hashes: dict[str, str] = {}
    depends: dict[KernelDepend, None] = {}
    for name in answer.variants:
        document = answer.registry.metadata(repo_id, commit, name)
        metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{METADATA}")
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


PYPROJECT = "pyproject.toml"


def as_text(dependency: Request) -> str:
    """A requirement as a lock records it."""
    return dependency.version or f"revision {dependency.revision}"


def allows(dependency: Request, release: str) -> bool:
    """Whether a release such as ``1.4.2`` satisfies a requirement; false for a revision."""
    if dependency.version is None or dependency.is_branch_of_major:
        return release.partition(".")[0] == dependency.version
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

    return release in SpecifierSet(dependency.version)


def load_document(text: str, *, source: str = PYPROJECT) -> dict[str, Any]:
    """Parse a pyproject.toml."""
    try:
        return untrusted.parse_toml(text)
    except ValueError as error:
        raise UsageError(f"{source} is not TOML: {error}", hint="fix the file") from None


def read_dependencies(document: dict[str, Any], *, source: str = PYPROJECT) -> tuple[Request, ...]:
    """The required kernels of a project, by repo id; none without the table."""
    hint = (
        'write it like "owner/name" = 1, "owner/name" = ">=1.2,<2" or '
        '"owner/name" = { revision = "main" }'
    )
    table: Any = document
    for key in ("tool", "kernels", "dependencies"):
        table = table.get(key, {}) if isinstance(table, dict) else None
    if not isinstance(table, dict):
        raise UsageError(f"{source}: [tool.kernels.dependencies] is not a table", hint=hint)
    dependencies: list[Request] = []
    mistakes: list[str] = []
    for repo_id, wanted in sorted(table.items()):
        try:
            dependencies.append(_read_dependency(repo_id, wanted))
        except RequestError as error:
            mistakes.append(f"{repo_id!r} = {wanted!r}: {error.message}")
    if mistakes:
        listing = "\n  ".join(mistakes)
        raise UsageError(f"{source}, [tool.kernels.dependencies]:\n  {listing}", hint=hint)
    return tuple(dependencies)


def _read_dependency(repo_id: str, wanted: object) -> Request:
    match wanted:
        case {"revision": str(revision), **rest} if not rest:
            return request(repo_id, revision=revision)
        case {"version": version, **rest} if not rest:
            wanted = version
    if isinstance(wanted, bool) or not isinstance(wanted, int | str):
        raise RequestError("it is neither a version nor a revision")
    return request(repo_id, wanted)
