# SPDX-License-Identifier: Apache-2.0
"""Publish built variants to a registry as a version whose variants never change.

This module decides what is published and as which version; a destination writes it.
"""

from __future__ import annotations

import base64
import contextlib
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact import directories
from kernforge.artifact.integrity import UNHASHED, tree_files, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.errors import IntegrityError, MovedError, RegistryError, UsageError
from kernforge.publish import offers
from kernforge.publish.branch import BranchChange, change, check_name
from kernforge.publish.destination import Destination, DirectoryDestination, Release
from kernforge.publish.hub import HubDestination
from kernforge.publish.version import VersionChoice, choose_version
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub import HubRegistry
from kernforge.registry.names import SOURCE, Version3, dotted, tag_of
from kernforge.system.digest import sha256
from kernforge.system.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kernforge.publish.api_diff import Offer
    from kernforge.publish.version import Contents
    from kernforge.registry.api import Registry

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
        choice: the reason for the version number and the changes since the last version; or what
            changed on the branch.
    """

    commit: str
    version: str | None
    changed: bool
    variants: tuple[str, ...]
    url: str
    branch: str
    pull_requests: tuple[tuple[str, str], ...]
    choice: VersionChoice | BranchChange

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
    build_dir: Path,
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    branch: str | None = None,
    card: str | Callable[[Sequence[str]], str] | None = None,
    part: bool = False,
    private: bool | None = None,
    create_pr: bool = False,
    source: Mapping[str, Path] | None = None,
    benchmarks: Mapping[str, Path] | None = None,
) -> PublishResult:
    """Publish the variants of a build.

    If no version is given: the registry is not changed if the newest version of this major version
    has exactly these variants. Variants that this version lacks are added to it, so that several
    machines can each publish what they built. A variant with other bytes makes the next version,
    patch or minor by its changes, which has only the variants of this call.

    A version is compared with the version before it of the same major version (see ``apidiff``) and
    refused if its number is too low for the changes.

    On a branch that is not a version's, the variants replace those of their names, and nothing is
    compared. Other variants stay. Such a branch is loaded by ``revision=`` alone.

    Args:
        build_dir: directory of variants, or of one variant.
        registry: a registry that can be written to.
        version: ``X.Y.Z``; X must be the major version of the build. None chooses the version.
        branch: a branch to publish to; None and ``v<major>`` publish a version.
        card: Markdown that describes the kernel, or a function that writes it for the names of the
            published variants; None keeps the published card.
        part: whether other machines publish the rest of the version, so that a missing variant
            does not count as a change.
        private: whether a kernel that this call creates on a hub is private.
        create_pr: open a pull request on a hub instead of publishing.
        source: files of the project, by path, from which others can build more variants. A version
            keeps the source that it was first published with.
        benchmarks: scripts that measure the kernel, by file name; None keeps the published ones.

    Raises:
        UsageError: the repo id, the version or the branch is invalid, or the registry does not
            support an option.
        RegistryError: the variants do not belong together, the version is published with other
            bytes, or its number is too low for the changes.
        CheckError: the public names of a variant cannot be read.
        IntegrityError: a variant differs from its digest, or has none.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build_dir, wanted)
    other = _other_branch(registry, branch, built, wanted)
    destination = destination_of(registry, private=private, create_pr=create_pr)
    contents, local = _offered(built)
    project = source or {}
    scripts = {name: sha256_file(file) for name, file in (benchmarks or {}).items()}

    def attempt() -> PublishResult:
        """Choose a version by what is published, or change a branch, and write it."""
        choice: VersionChoice | BranchChange
        with destination.writing(repo_id):
            if other is not None:
                choice = change(destination.on_branch(repo_id, other, local), contents)
                number, keep, onto = None, not project, other
            else:
                published = destination.published(repo_id, contents, local)
                choice = _choose(destination.registry, repo_id, published, built, wanted, part=part)
                number = choice.version
                keep = not project or _has_source(destination.registry, repo_id, number)
                onto = f"v{number[0]}"
            sources = {} if keep else {sha256_file(file): file for file in project.values()}
            sources |= {scripts[name]: file for name, file in (benchmarks or {}).items()}
            written = destination.write(
                repo_id,
                Release(
                    branch=onto,
                    version=number,
                    contents=choice.contents,
                    files={**local, **sources},
                    card=card(sorted(choice.contents)) if callable(card) else card,
                    source=None if keep else {p: sha256_file(file) for p, file in project.items()},
                    benchmarks=None if benchmarks is None else scripts,
                ),
            )
        return PublishResult(
            commit=written.commit,
            version=None if number is None else dotted(number),
            changed=written.changed,
            variants=tuple(sorted(choice.contents)),
            url=written.url,
            branch=onto,
            pull_requests=written.pull_requests,
            choice=choice,
        )

    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(MovedError):
            return attempt()
    return attempt()


def preview(
    build_dir: Path,
    registry: Registry,
    repo_id: str,
    version: str | None = None,
    *,
    branch: str | None = None,
    part: bool = False,
) -> VersionChoice | BranchChange:
    """What ``publish`` would publish, and as which version; nothing is written.

    The arguments and errors are those of ``publish``.
    """
    wanted = None if version is None else _parse_version(version)
    built = _read_all(build_dir, wanted)
    branch = _other_branch(registry, branch, built, wanted)
    contents, local = _offered(built)
    if branch is not None:
        return change(destination_of(registry).on_branch(repo_id, branch, local), contents)
    published = destination_of(registry).published(repo_id, contents, local)
    return _choose(registry, repo_id, published, built, wanted, part=part)


def _other_branch(
    registry: Registry, branch: str | None, built: list[_Built], wanted: Version3 | None
) -> str | None:
    """The branch to publish to, unless it is that of the major version."""
    major = built[0].metadata.version
    if branch is None or branch == f"v{major}":
        return None
    check_name(branch, major=major)
    if branch == "main" and isinstance(registry, DirectoryRegistry):
        raise UsageError(
            "the branch 'main' of a registry in a directory is its newest version",
            hint="give another name (--branch, or branch in [general.hub])",
        )
    if wanted is not None:
        raise UsageError(
            f"the branch {branch!r} has no versions, and {dotted(wanted)} is one",
            hint=f"leave the version out, or give --branch v{major}",
        )
    return branch


def _has_source(registry: Registry, repo_id: str, version: Version3) -> bool:
    """Whether a version contains the project that its variants were built from."""
    commit = registry.ref(repo_id, tag_of(version))
    lock = f"{SOURCE}/kernforge.lock"
    return commit is not None and registry.small_file(repo_id, commit, lock) is not None


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


def _offered(built: list[_Built]) -> tuple[Contents, dict[str, Path]]:
    """Hashes of the built files by variant and path, and the files by their hashes."""
    contents = {variant.name: variant.hashes for variant in built}
    files = {v.hashes[path]: file for v in built for path, file in v.files.items()}
    return contents, files


def _choose(
    registry: Registry,
    repo_id: str,
    published: Mapping[Version3, Contents],
    built: list[_Built],
    wanted: Version3 | None,
    *,
    part: bool,
) -> VersionChoice:
    def offered(version: Version3) -> tuple[Offer, ...]:
        commit = registry.ref(repo_id, tag_of(version))
        return () if commit is None else offers.published(registry, repo_id, commit)

    return choose_version(
        published,
        {variant.name: variant.hashes for variant in built},
        [offers.offer(variant.directory, variant.metadata) for variant in built],
        offered,
        major=built[0].metadata.version,
        wanted=wanted,
        part=part,
    )


def _parse_version(text: str) -> Version3:
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a version to publish", hint="write it like 1.2.3")
    return int(match[1]), int(match[2]), int(match[3])


def _read_all(build_dir: Path, wanted: Version3 | None) -> list[_Built]:
    built = [_read_variant(directory) for directory in directories.variants(build_dir)]
    _check_together(built, wanted)
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
