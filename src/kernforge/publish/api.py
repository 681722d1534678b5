# SPDX-License-Identifier: Apache-2.0
"""Publish built variants to a registry as a version, which never changes afterwards.

This module chooses the version and its files, and the source that goes with them for builds of more
variants; a destination writes them.
"""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact import directories
from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.integrity import UNHASHED
from kernforge.artifact.metadata import FILE
from kernforge.errors import IntegrityError, MovedError, NetworkError, RegistryError, UsageError
from kernforge.project import units
from kernforge.project.api import MANIFEST, Project
from kernforge.publish.destination import Destination, DirectoryDestination, Release
from kernforge.publish.hub import HubDestination
from kernforge.publish.objects import ObjectDestination
from kernforge.publish.oci import OciDestination
from kernforge.publish.version import (
    VersionChoice,
    choose_version,
    offer,
    published_offers,
    variants_of,
)
from kernforge.registry import names
from kernforge.registry.directory import DirectoryRegistry, Registry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.objects import ObjectTransport
from kernforge.registry.oci import OciTransport
from kernforge.registry.remote import RemoteRegistry
from kernforge.system.digest import sha256
from kernforge.system.files import refuse_writable, sha256_file
from kernforge.toolchain import lockfile

_ATTEMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The result of a publication.

    Attributes:
        commit: the commit of the version; empty for a dry run.
        version: number of the version, such as ``1.0.2``; None on a branch without versions.
        variants: all variants of the version or branch, sorted.
        branch: the branch of the major version, or the requested one.
        choice: the reason for the version number and the changes since the last version; None on a
            branch without versions.
    """

    commit: str
    version: str | None
    changed: bool
    variants: tuple[str, ...]
    url: str
    branch: str
    choice: VersionChoice | None

    @property
    def status(self) -> str:
        """``no_changes`` or ``uploaded``, the words of kernel-builder."""
        return "uploaded" if self.changed else "no_changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Upload:
    """A variant to publish, with its files and their hashes."""

    variant: BuiltVariant
    files: Mapping[str, Path]
    hashes: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.variant.path.name


def publish(
    build: Path | Sequence[Path],
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    branch: str | None = None,
    sources: str | None = None,
    card: str | Callable[[Sequence[str]], str] | None = None,
    private: bool | None = None,
    source: Mapping[str, Path] | None = None,
    benchmarks: Mapping[str, Path] | None = None,
    dry_run: bool = False,
) -> PublishResult:
    """Publish the variants of a build as one version, all together.

    A published version never changes. If no version is given: nothing is written if the newest
    version of this major version has exactly these variants; else they are the next version, patch
    or minor by their changes.

    A version is compared with the version before it of the same major version and refused if its
    number is too low for the changes.

    A branch without versions has the variants of the last call, and nothing is compared. Such a
    branch is loaded by ``revision=`` alone.

    Args:
        build: directories of variants, or of one variant; those of several machines together.
        version: ``X.Y.Z``; X must be the major version of the build. None chooses the version.
        branch: a branch to publish to; None and ``v<major>`` publish a version.
        sources: digest of the project's sources, from which every variant must be built.
        card: Markdown that describes the kernel, or a function that writes it for the names of the
            published variants.
        private: whether a kernel that this call creates on a hub is private.
        source: files of the project, by path, for builds of more variants.
        benchmarks: scripts that measure the kernel, by file name.

    Raises:
        UsageError: the repo id, the version or the branch is invalid, or the registry does not
            support an option.
        RegistryError: the variants do not belong together or are not of these sources, the version
            is published with other bytes, or its number is too low for the changes.
        CheckError: the public names of a variant cannot be read.
        IntegrityError: a variant differs from its digest, or has none.
        StorageError: a file of it is world-writable.
    """
    requested = None if version is None else _parse_version(version)
    uploads = _read_all(build, version, sources)
    metadata = uploads[0].variant.metadata
    other = _other_branch(registry, branch, metadata.version, version)
    place = destination(registry, private=private)
    variants = tuple(sorted(upload.name for upload in uploads))
    offered = [offer(each.variant.path, each.variant.metadata) for each in uploads]
    tree = {f"build/{u.name}/{path}": u.hashes[path] for u in uploads for path in u.files}
    files = {u.hashes[path]: file for u in uploads for path, file in u.files.items()}
    for folder, more in ((names.SOURCE, source or {}), (names.BENCHMARKS, benchmarks or {})):
        for path, file in more.items():
            tree[f"{folder}/{path}"] = digest = sha256_file(file)
            files[digest] = file

    def attempt() -> PublishResult:
        """Choose a version after the published ones, and write it."""
        with contextlib.nullcontext() if dry_run else place.writing(repo_id):
            published = place.versions(repo_id)
            choice = None
            if other is None:
                choice = choose_version(
                    published,
                    variants_of(tree),
                    offered,
                    variants=lambda v: variants_of(place.tree(repo_id, published[v], files)),
                    offers=lambda v: published_offers(registry, repo_id, published[v]),
                    major=metadata.version,
                    requested=requested,
                )
            release = Release(
                branch=other or f"v{metadata.version}",
                version=choice.version if choice else None,
                tree=tree,
                files=files,
                card=card(variants) if callable(card) else card,
            )
            commit, changed = ("", False) if dry_run else place.write(repo_id, release)
        return PublishResult(
            commit=commit,
            version=names.dotted(choice.version) if choice else None,
            changed=changed,
            variants=variants,
            url=place.url(repo_id, release.reference),
            branch=release.branch,
            choice=choice,
        )

    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(MovedError):
            return attempt()
    return attempt()


def _other_branch(
    registry: Registry, branch: str | None, major: int, version: str | None
) -> str | None:
    """The branch to publish to, unless it is that of the major version."""
    if branch is None or branch == f"v{major}":
        return None
    names.check_revision(branch)
    is_followed = branch == "main" and not isinstance(registry, HubRegistry)
    if version or is_followed or names.versions([branch]) or names.majors([branch]):
        raise UsageError(
            f"{branch!r} cannot be a branch without versions"
            + (f": {version} is a version" if version else ""),
            hint=f"give a name such as dev, or v{major} to publish a version (branch in "
            "[general.hub]); main is the newest version, but on a hub",
        )
    return branch


def destination(registry: Registry, *, private: bool | None = None) -> Destination:
    """What writes to a registry.

    Raises:
        NetworkError: the registry is offline.
        RegistryError: it cannot be written to.
        UsageError: it has no private kernels, or a package is missing.
    """
    refuse_offline(registry)
    if isinstance(registry, HubRegistry):
        return HubDestination(registry, private=private)
    if private:
        raise UsageError(
            f"{registry.url} has no private kernels: only a hub has",
            hint="set the permissions of the directory or the bucket, or in the registry",
        )
    if isinstance(registry, DirectoryRegistry):
        return DirectoryDestination(registry)
    if isinstance(registry, RemoteRegistry):
        if isinstance(registry.transport, ObjectTransport):
            return ObjectDestination(registry, registry.transport)
        if isinstance(registry.transport, OciTransport):
            return OciDestination(registry, registry.transport)
    raise RegistryError(
        f"{registry.url} cannot be written to",
        hint="publish to a directory, a bucket, an OCI registry or a hub",
    )


def refuse_offline(registry: Registry) -> None:
    """Refuse the cache of a server that is not to be contacted."""
    if registry.offline_server:
        raise NetworkError(
            f"{registry.offline_server} cannot be used: HF_HUB_OFFLINE is set",
            hint="unset HF_HUB_OFFLINE",
        )


def _parse_version(text: str) -> names.Version3:
    for version in names.versions([f"v{text.removeprefix('v')}"]):
        return version
    raise UsageError(f"{text!r} is not a version to publish", hint="write it like 1.2.3")


def _read_all(
    build: Path | Sequence[Path], version: str | None, sources: str | None
) -> list[_Upload]:
    """Read and verify the variants of all directories, each once."""
    uploads: dict[str, _Upload] = {}
    for place in [build] if isinstance(build, Path) else build:
        for directory in directories.variants(place):
            upload = _read_variant(directory)
            other = uploads.setdefault(upload.name, upload)
            if other.hashes != upload.hashes:
                raise RegistryError(
                    f"{other.variant.path} and {directory} are two builds of {upload.name}, and "
                    "they differ",
                    hint="build each variant on one machine",
                )
    built = [upload.variant for upload in uploads.values()]
    directories.refuse_mixture(built, version and version.removeprefix("v"))
    documents = {variant.path.name: variant.metadata for variant in built}
    if problem := directories.other_sources(documents, sources):
        raise RegistryError(
            f"nothing was published: {problem}",
            hint="build again (kernforge build), and remove variants from the build directory that "
            "are no longer built",
        )
    return list(uploads.values())


def _read_variant(directory: Path) -> _Upload:
    variant = BuiltVariant.read(directory)
    if str(variant.variant) != directory.name:
        raise RegistryError(
            f"{directory} must have the name {variant.variant}", hint="build the kernel again"
        )
    digest = variant.metadata.digest
    if digest is None or digest.algorithm != "sha256":
        raise IntegrityError(
            f"{directory / FILE} has no SHA-256 digest", hint="build the kernel with kernforge"
        )
    files = variant.verified_files()
    for path in (directory, *files.values()):
        refuse_writable(path)
    hashes = {path: base64.b64decode(text).hex() for path, text in digest.files.items()}
    hashes |= {path: sha256(variant.read_file(path)) for path in UNHASHED & set(files)}
    return _Upload(variant=variant, files=files, hashes=hashes)


# SPDX identifiers, without the version, of licences that allow everyone to redistribute the source.
_OPEN = (
    *("0bsd", "agpl", "apache", "artistic", "bsd", "bsl-1", "cc0", "ecl", "epl", "eupl", "gpl"),
    *("isc", "lgpl", "mit", "mpl", "ms-pl", "ncsa", "postgresql", "unlicense", "upl", "zlib"),
)
_NOT_NAMES = re.compile(r"\bWITH\s+[^()\s]+|\b(?:AND|OR)\b|[()]", re.IGNORECASE)
_LEGAL = re.compile(r"(?:LICEN[CS]E|NOTICE|COPYING)(?:[.-][^/]*)?", re.IGNORECASE)


def pack_source(project: Project, *, wanted: bool | None) -> dict[str, Path]:
    """The input files of the project's builds, with its lock and its licence, by path.

    The bundled headers are included, because they differ between versions of kernforge.

    Args:
        wanted: whether to include the source; None includes it if the licence is open and the
            project has a lock.
    """
    if wanted is False or (wanted is None and not is_open(project.manifest.general.license or "")):
        return {}
    if lockfile.FILE_NAME not in project.files:
        if wanted is None:
            return {}
        raise UsageError(
            f"{project.root} has no {lockfile.FILE_NAME}, which a build of its source needs",
            hint="run `kernforge lock`, or publish with --no-with-source",
        )
    own = {MANIFEST, lockfile.FILE_NAME, *project.sources.digests}
    own |= {path for path in project.files if _LEGAL.fullmatch(path)}
    packed = {path: units.bundled_path(path) for path in project.sources.bundled_headers}
    packed |= {path: project.files[path] for path in own}
    return dict(sorted(packed.items()))


def is_open(license_text: str) -> bool:
    """Whether a licence, as an SPDX expression, allows everyone to redistribute the source."""
    names = _NOT_NAMES.sub(" ", license_text.lower()).split()
    return bool(names) and all(name.startswith(_OPEN) for name in names)
