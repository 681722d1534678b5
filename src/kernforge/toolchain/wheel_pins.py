# SPDX-License-Identifier: Apache-2.0
"""Pick wheels from the user's indexes, and pin them as a lock does."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from kernforge import untrusted
from kernforge.errors import IntegrityError, ToolchainError
from kernforge.system.digest import sha256
from kernforge.toolchain.index import remote_zip
from kernforge.toolchain.index.index import Distribution
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import LockedWheel

_SHOWN = 8


def newest(wheels: Wheels, project: str, version: str, cpu: str) -> Distribution:
    """Newest wheel of a project's release series, as ``"13.0"``; raises what ``matching`` does."""
    return matching(wheels, project, SpecifierSet(f"=={version}.*"), cpu)


def matching(wheels: Wheels, project: str, specifier: SpecifierSet, cpu: str) -> Distribution:
    """Newest wheel of a project that a specifier admits, of no local version.

    Raises:
        ToolchainError: there is none.
    """
    listed = wheels.index.wheels(project)
    candidates = [
        wheel
        for wheel in listed
        if wheel.version in specifier and wheel.version.local is None and _runs_on(wheel, cpu)
    ]
    if not candidates:
        there = sorted({wheel.version.release[:2] for wheel in listed})[-_SHOWN:]
        newest = ", ".join(".".join(map(str, release)) for release in there)
        raise ToolchainError(
            f"no configured package index has {project}{specifier} for {cpu} Linux",
            hint=f"it has {newest}: ask for another version" if newest else "check pip's index-url",
        )
    best = max((wheel.version, wheel.build) for wheel in candidates)
    of_best = (wheel for wheel in candidates if (wheel.version, wheel.build) == best)
    return min(of_best, key=lambda wheel: wheel.file)


def _runs_on(wheel: Distribution, cpu: str) -> bool:
    platforms = {tag.platform for tag in wheel.tags}
    return any(p == "any" or (p.startswith("manylinux") and p.endswith(cpu)) for p in platforms)


def pins(wheels: Wheels, meta: Distribution) -> dict[str, SpecifierSet]:
    """Which version of each wheel a release of NVIDIA's metapackage asks for.

    Raises:
        ToolchainError: it is not what the index promises.
    """
    data = wheels.index.transport.body(meta.url).read()
    if meta.sha256 and sha256(data) != meta.sha256:
        raise ToolchainError(f"{meta.file} is not what the index promises (sha256 {meta.sha256})")
    return requirements(data, meta.file)


def requirements(wheel: bytes, file: str) -> dict[str, SpecifierSet]:
    """What a wheel's METADATA requires, by project.

    Raises:
        IntegrityError: the wheel is damaged.
    """
    archive = remote_zip.LocalWheel(io.BytesIO(wheel))
    with untrusted.foreign_parser(
        lambda reason: IntegrityError(
            f"{file} has no METADATA that can be read: {reason}", hint="use another index"
        )
    ):
        (name,) = [n for n in archive.names() if n.endswith(".dist-info/METADATA")]
        ((_, document),) = archive.fetch([name])
        raw, _ = parse_email(document)
        required: Iterable[Requirement] = map(Requirement, raw.get("requires_dist", []))
        return {canonicalize_name(r.name): r.specifier for r in required}


def whole(wheel: Distribution, wheels: Wheels) -> LockedWheel:
    """Pin a wheel that will be read whole."""
    if wheel.sha256:
        return LockedWheel(file=wheel.file, sha256=wheel.sha256)
    hashed = hashlib.sha256()
    for chunk in wheels.index.transport.body(wheel.url).chunks:
        hashed.update(chunk)
    return LockedWheel(file=wheel.file, sha256=hashed.hexdigest())


def by_record(wheel: Distribution, wheels: Wheels) -> LockedWheel:
    """Pin a wheel that will be read by ranges."""
    archive = wheels.parts(wheel.file, wheel.sha256)
    ((_, record),) = archive.fetch([remote_zip.record_name(archive.names())])
    return LockedWheel(file=wheel.file, sha256=wheel.sha256, record=sha256(record))
