# SPDX-License-Identifier: Apache-2.0
"""Publish built variants to a registry as a version, which never changes afterwards.

This module decides what is published and as which version; a destination writes it.
"""

from __future__ import annotations

import base64
import contextlib
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact import directories
from kernforge.artifact.integrity import UNHASHED, tree_files, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.errors import IntegrityError, MovedError, RegistryError, UsageError
from kernforge.publish import offers
from kernforge.publish.directory import Destination, DirectoryDestination, Release
from kernforge.publish.hub import PUBLISHING, HubDestination
from kernforge.publish.version import VersionChoice, choose_version
from kernforge.registry.base import Registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.names import COMMIT, Version3, dotted, is_ref, majors, versions
from kernforge.system.digest import sha256
from kernforge.system.files import sha256_file

_VERSION = re.compile(r"v?(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
_ATTEMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishResult:
    """The result of a publication.

    Attributes:
        commit: the commit of the version.
        version: number of the version, such as ``1.0.2``; None if the branch is not a version's.
        variants: all variants of the version or branch, sorted.
        branch: the branch of the major version, or the one that was asked for.
        pull_requests: branch and URL of each pull request that was opened; if there are any,
            nothing is published yet.
        choice: the reason for the version number and the changes since the last version; None on a
            branch that is not a version's.
    """

    commit: str
    version: str | None
    changed: bool
    variants: tuple[str, ...]
    url: str
    branch: str
    pull_requests: tuple[tuple[str, str], ...]
    choice: VersionChoice | None

    @property
    def status(self) -> str:
        """``no_changes``, ``uploaded`` or ``pull_request_created``, the words of kernel-builder."""
        if self.pull_requests:
            return "pull_request_created"
        return "uploaded" if self.changed else "no_changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """A variant to publish: its metadata, and its files with their hashes."""

    name: str
    directory: Path
    metadata: Metadata
    files: Mapping[str, Path]
    hashes: Mapping[str, str]


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
    create_pr: bool = False,
    source: Mapping[str, Path] | None = None,
    benchmarks: Mapping[str, Path] | None = None,
) -> PublishResult:
    """Publish the variants of a build as one version, all together.

    A published version never changes. If no version is given: nothing is written if the newest
    version of this major version has exactly these variants; else they are the next version, patch
    or minor by their changes.

    A version is compared with the version before it of the same major version and
    refused if its number is too low for the changes.

    A branch that is not a version's has the variants of the last call, and nothing is compared.
    Such a branch is loaded by ``revision=`` alone.

    Args:
        build: directories of variants, or of one variant; those of several machines together.
        registry: a registry that can be written to.
        version: ``X.Y.Z``; X must be the major version of the build. None chooses the version.
        branch: a branch to publish to; None and ``v<major>`` publish a version.
        sources: digest of the project's sources, from which every variant must be built.
        card: Markdown that describes the kernel, or a function that writes it for the names of the
            published variants.
        private: whether a kernel that this call creates on a hub is private.
        create_pr: open a pull request on a hub instead of publishing.
        source: files of the project, by path, from which others can build more variants.
        benchmarks: scripts that measure the kernel, by file name.

    Raises:
        UsageError: the repo id, the version or the branch is invalid, or the registry does not
            support an option.
        RegistryError: the variants do not belong together or are not of these sources, the version
            is published with other bytes, or its number is too low for the changes.
        CheckError: the public names of a variant cannot be read.
        IntegrityError: a variant differs from its digest, or has none.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build, wanted, sources)
    other = _other_branch(registry, branch, built, wanted)
    destination = destination_of(registry, private=private, create_pr=create_pr)
    contents = {variant.name: variant.hashes for variant in built}
    local = _by_hash(built)
    project = {path: sha256_file(file) for path, file in (source or {}).items()}
    scripts = {name: sha256_file(file) for name, file in (benchmarks or {}).items()}
    others = {project[path]: file for path, file in (source or {}).items()}
    others |= {scripts[name]: file for name, file in (benchmarks or {}).items()}
    names = tuple(sorted(contents))

    def attempt() -> PublishResult:
        """Choose a version by what is published, and write it."""
        with destination.writing(repo_id):
            published = destination.versions(repo_id)
            choice = None if other else _choose(destination, repo_id, published, built, wanted)
            number = None if choice is None else choice.version
            release = Release(
                branch=other or f"v{built[0].metadata.version}",
                version=number,
                contents=contents,
                files={**local, **others},
                card=card(names) if callable(card) else card,
                source=project,
                benchmarks=scripts,
            )
            written = destination.write(repo_id, release)
        return PublishResult(
            commit=written.commit,
            version=None if number is None else dotted(number),
            changed=written.changed,
            variants=names,
            url=written.url,
            branch=release.branch,
            pull_requests=written.pull_requests,
            choice=choice,
        )

    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(MovedError):
            return attempt()
    return attempt()


def check_build(build: Path | Sequence[Path], sources: str | None = None) -> None:
    """Refuse a build that ``publish`` refuses whatever is published, with its errors."""
    _read_all(build, None, sources)


def preview(
    build: Path | Sequence[Path],
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    branch: str | None = None,
    sources: str | None = None,
) -> tuple[tuple[str, ...], VersionChoice | None]:
    """The variants that ``publish`` would publish, and as which version; nothing is written.

    The arguments and errors are those of ``publish``; a branch that is not a version's has no
    version.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build, wanted, sources)
    names = tuple(sorted(variant.name for variant in built))
    destination = destination_of(registry)
    if _other_branch(registry, branch, built, wanted) is not None:
        return names, None
    return names, _choose(destination, repo_id, destination.versions(repo_id), built, wanted)


def _other_branch(
    registry: Registry, branch: str | None, built: list[_Built], wanted: Version3 | None
) -> str | None:
    """The branch to publish to, unless it is that of the major version."""
    major = built[0].metadata.version
    if branch is None or branch == f"v{major}":
        return None
    check_branch(branch, major=major)
    if branch == "main" and isinstance(registry, DirectoryRegistry):
        raise UsageError(
            "the branch 'main' of a registry in a directory is its newest version",
            hint="give another name in branch of [general.hub]",
        )
    if wanted is not None:
        raise UsageError(
            f"the branch {branch!r} has no versions, and {dotted(wanted)} is one",
            hint=f"leave the version out, or name the branch v{major}",
        )
    return branch


def check_branch(branch: str, *, major: int) -> None:
    """Refuse a name that is not a branch's, or that is reserved in a registry.

    Args:
        major: the major version of the build, whose branch is ``v<major>``.

    Raises:
        UsageError: it is such a name.
    """
    parts = branch.split("/")
    reason = ""
    if COMMIT.fullmatch(branch) or any(part.startswith((PUBLISHING, "tmp-")) for part in parts):
        reason = "is a reserved name in a registry"
    elif (
        not is_ref(branch)
        or branch.startswith("-")
        or ".." in branch
        or any(not part or part.endswith((".", ".lock")) for part in parts)
    ):
        reason = "is not the name of a branch"
    elif versions([branch]):
        reason = "is the name of a version's tag"
    elif majors([branch]) and majors([branch]) != (major,):
        reason = f"is the branch of another major version: version is {major} in this build"
    if reason:
        raise UsageError(
            f"the branch {branch!r} {reason}",
            hint=f"give a name such as dev, or v{major} to publish a version "
            "(branch in [general.hub])",
        )


def destination_of(
    registry: Registry, *, private: bool | None = None, create_pr: bool = False
) -> Destination:
    """The destination that writes to a registry.

    Raises:
        RegistryError: the registry cannot be written to.
        UsageError: the registry has no pull requests or private kernels.
    """
    if isinstance(registry, DirectoryRegistry):
        if private or create_pr:
            raise UsageError(
                "a registry in a directory has neither private kernels nor pull requests",
                hint="set the permissions of the directory in the file system",
            )
        return DirectoryDestination(registry)
    if isinstance(registry, HubRegistry):
        return HubDestination(registry, private=private, create_pr=create_pr)
    raise RegistryError(
        f"{registry.url} cannot be written to", hint="publish to a directory or to a hub"
    )


def _by_hash(built: list[_Built]) -> dict[str, Path]:
    """The built files by their hex SHA-256."""
    return {v.hashes[path]: file for v in built for path, file in v.files.items()}


def _choose(
    destination: Destination,
    repo_id: str,
    published: Mapping[Version3, str],
    built: list[_Built],
    wanted: Version3 | None,
) -> VersionChoice:
    local = _by_hash(built)
    return choose_version(
        published,
        {variant.name: variant.hashes for variant in built},
        [offers.offer(variant.directory, variant.metadata) for variant in built],
        contents_of=lambda version: destination.contents(repo_id, published[version], local),
        offers_of=lambda version: offers.published(
            destination.registry, repo_id, published[version]
        ),
        major=built[0].metadata.version,
        wanted=wanted,
    )


def _parse_version(text: str) -> Version3:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a version to publish", hint="write it like 1.2.3")
    return int(match[1]), int(match[2]), int(match[3])


def _read_all(
    build: Path | Sequence[Path], wanted: Version3 | None, sources: str | None
) -> list[_Built]:
    """Read and verify the variants of all directories, each once."""
    places = [build] if isinstance(build, Path) else build
    found: dict[str, _Built] = {}
    for directory in (path for place in places for path in directories.variants(place)):
        variant = _read_variant(directory)
        other = found.setdefault(variant.name, variant)
        if other.hashes != variant.hashes:
            raise RegistryError(
                f"{other.directory} and {directory} are two builds of {variant.name}, and they "
                "differ",
                hint="build each variant on one machine",
            )
    built = list(found.values())
    _check_together(built, wanted)
    documents = {variant.name: variant.metadata for variant in built}
    if problem := directories.other_sources(documents, sources):
        raise RegistryError(
            f"nothing was published: {problem}",
            hint="build again (kernforge build), and remove variants from the build directory that "
            "are no longer built",
        )
    return built


def _read_variant(directory: Path) -> _Built:
    """Read and verify one variant."""
    name = str(Variant.parse(directory.name))
    if name != directory.name:
        raise RegistryError(f"{directory} must have the name {name}", hint="build the kernel again")
    document = (directory / FILE).read_bytes()
    metadata = Metadata.from_json(document, source=str(directory / FILE))
    digest = metadata.digest
    if digest is None or digest.algorithm != "sha256":
        raise IntegrityError(
            f"{directory / FILE} has no SHA-256 digest", hint="build the kernel with kernforge"
        )
    verify_tree(directory, digest)
    _refuse_modes(directory)
    hashes = {path: base64.b64decode(text).hex() for path, text in digest.files.items()}
    files = tree_files(directory)
    hashes |= {path: sha256(files[path].read_bytes()) for path in UNHASHED & set(files)}
    return _Built(name=name, directory=directory, metadata=metadata, files=files, hashes=hashes)


def _refuse_modes(directory: Path) -> None:
    """Refuse files that mean more than their content: it alone is published.

    Raises:
        IntegrityError: a file has another name elsewhere, runs as its owner, or is anybody's.
    """
    for path, file in tree_files(directory).items():
        state = file.lstat()
        if stat.S_ISLNK(state.st_mode):
            continue
        problem = ""
        if state.st_nlink > 1:
            problem = f"is a hard link: it has {state.st_nlink} names, and each may change it"
        elif state.st_mode & (stat.S_ISUID | stat.S_ISGID):
            problem = "is setuid or setgid"
        elif state.st_mode & stat.S_IWOTH:
            problem = "can be written by everybody"
        if problem:
            raise IntegrityError(
                f"{path} in {directory} {problem}",
                hint="build the kernel again, or publish a copy: cp -rL DIR NEW && "
                "chmod -R a-s,go-w NEW",
            )


def _check_together(built: list[_Built], wanted: Version3 | None) -> None:
    """Refuse variants that are not of one kernel and major version."""
    kernels = {(variant.metadata.name, variant.metadata.version) for variant in built}
    if len(kernels) > 1:
        listing = "; ".join(
            f"{v.name} is {v.metadata.name} version {v.metadata.version}" for v in built
        )
        raise RegistryError(
            f"the variants are not of one kernel and version: {listing}",
            hint="remove the old variants from the build directory, or build all again",
        )
    major = built[0].metadata.version
    if wanted is not None and wanted[0] != major:
        raise UsageError(
            f"version {dotted(wanted)} does not begin with {major}, the major version of the build",
            hint=f"publish as {major}.Y.Z, or raise version in build.toml and build again",
        )
