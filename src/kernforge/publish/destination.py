# SPDX-License-Identifier: Apache-2.0
"""Registries that can be written to: the protocol, and a registry in a directory.

The files of a version are written first and the references last, each reference by one atomic write:
a reader sees the old version or the new one, and an interrupted publication leaves the old one.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernforge.project.card import GENERATED
from kernforge.registry.names import BENCHMARKS, SOURCE, Version3, tag_of, versions
from kernforge.system import files
from kernforge.system.digest import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kernforge.publish.version import Contents
    from kernforge.registry.api import Registry
    from kernforge.registry.directory import DirectoryRegistry
    from kernforge.system.environment import Environment

CARD = "README.md"


def own_registry(environment: Environment, note: Callable[[str], None]) -> Path:
    """The directory of the user's own registry, to publish to.

    What an older kernforge published in the user's cache is moved there first. Where it cannot be
    moved in one step, it stays the place to publish to, so that versions follow on each other.

    Args:
        note: tells the user what was moved.
    """
    own, former = environment.own_registry, environment.former_registry
    if former is None or own.exists() or not former.is_dir():
        return own
    try:
        files.publish_tree(former, own)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        note(f"your registry is {former}, in a cache: move it to {own}")
        return former
    note(f"your registry was moved from {former}, a cache, to {own}")
    return own


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version to write, or the variants of a branch that is not a version's.

    Attributes:
        branch: the branch to write to: that of the major version, or another one.
        version: number of the version; None writes to the branch alone.
        contents: all variants of the version or branch, with those that are published already.
        files: files that may be new, by hex SHA-256.
        card: Markdown that describes the kernel; None keeps the published card, and a generated card
            does not replace an author's.
        source: hex SHA-256 of the sources of the variants, by path in the project; None keeps the
            published sources.
        benchmarks: hex SHA-256 of the benchmark scripts, by file name; None keeps the published
            scripts.
    """

    branch: str
    version: Version3 | None
    contents: Contents
    files: Mapping[str, Path]
    card: str | None = None
    source: Mapping[str, str] | None = None
    benchmarks: Mapping[str, str] | None = None

    @property
    def reference(self) -> str:
        """The tag of the version, or the branch if it is not a version's."""
        return self.branch if self.version is None else tag_of(self.version)

    def tree(self) -> dict[str, str]:
        """Hex SHA-256 by path in the commit, of all files that this release sets except the card."""
        tree = {
            f"build/{name}/{path}": digest
            for name, paths in self.contents.items()
            for path, digest in paths.items()
        }
        tree |= {f"{SOURCE}/{path}": digest for path, digest in (self.source or {}).items()}
        return tree | {f"{BENCHMARKS}/{n}": digest for n, digest in (self.benchmarks or {}).items()}

    @property
    def kept(self) -> tuple[str, ...]:
        """Folders of an older commit of the version that are kept."""
        parts = ((SOURCE, self.source), (BENCHMARKS, self.benchmarks))
        return tuple(f"{folder}/" for folder, new in parts if new is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of writing a release.

    Attributes:
        commit: the commit of the version; for a pull request, its last commit.
        pull_requests: branch and URL of each pull request that was opened instead of publishing.
    """

    commit: str
    changed: bool
    url: str
    pull_requests: tuple[tuple[str, str], ...] = field(default=())


class Destination(Protocol):
    """A registry that can be written to."""

    @property
    def registry(self) -> Registry:
        """The same registry, for reading."""
        ...

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Prepare to write to a kernel, which may not exist yet.

        Other publishers wait meanwhile if the registry has locks; if not, ``write`` detects them.
        """
        ...

    def published(self, repo_id: str, built: Contents, local: Mapping[str, Path]) -> Published:
        """The contents of every published version.

        Args:
            local: files of the variants to publish, by hex SHA-256. Content for which a registry
                has another hash is named by its SHA-256 if it is one of these files, and by that
                other hash if not.
        """
        ...

    def on_branch(self, repo_id: str, branch: str, local: Mapping[str, Path]) -> Contents | None:
        """The variants on a branch, hashed as ``published`` says; None if there is no branch."""
        ...

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version, or the variants of a branch.

        Raises:
            MovedError: another publisher has published since ``published`` or ``on_branch`` was
                called.
        """
        ...

    def write_branch(
        self, repo_id: str, branch: str, contents: Mapping[str, bytes], *, message: str
    ) -> str:
        """Put files into a branch of their own; returns its commit.

        Args:
            branch: its name; it is made where there is none.
            contents: of files at the top, by name.
            message: of the commit, where the registry has messages.
        """
        ...


if TYPE_CHECKING:
    Published = dict[Version3, Contents]


class DirectoryDestination:
    """A registry in a directory: a lock separates publishers, renames keep reads consistent."""

    def __init__(self, registry: DirectoryRegistry) -> None:
        self.registry = registry

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Hold the lock for writing to this kernel."""
        return self.registry.writing(repo_id)

    def published(
        self,
        repo_id: str,
        built: Contents,  # noqa: ARG002 - the protocol's
        local: Mapping[str, Path],  # noqa: ARG002 - the protocol's
    ) -> Published:
        """The contents of every published version."""
        return {
            version: contents_of(self._tree(repo_id, tag))
            for version, tag in versions(self.registry.ref_names(repo_id)).items()
        }

    def on_branch(
        self,
        repo_id: str,
        branch: str,
        local: Mapping[str, Path],  # noqa: ARG002 - the protocol's
    ) -> Contents | None:
        """The variants on a branch; None if there is no branch."""
        if self.registry.ref(repo_id, branch) is None:
            return None
        return contents_of(self._tree(repo_id, branch))

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version: blobs, then the snapshot, then the references."""
        registry = self.registry
        tree = release.tree()
        for path, digest in self._tree(repo_id, release.reference).items():
            if path == CARD or path.startswith(release.kept):
                tree[path] = digest
        before = registry.ref(repo_id, release.reference)
        old = None if before is None else registry.small_file(repo_id, before, CARD)
        if release.card is not None and replaces(release.card, old):
            tree[CARD] = sha256(release.card)
            registry.add_blob(repo_id, tree[CARD], release.card.encode())
        for digest, file in release.files.items():
            registry.add_blob(repo_id, digest, file)
        commit, created = registry.add_snapshot(repo_id, tree)
        moved = (
            registry.set_ref(repo_id, release.branch, commit)
            if release.version is None
            else self._set_refs(repo_id, release.version, commit)
        )
        return Written(
            commit=commit,
            changed=created or moved,
            url=registry.snapshot(repo_id, commit).as_uri(),
        )

    def write_branch(
        self,
        repo_id: str,
        branch: str,
        contents: Mapping[str, bytes],
        *,
        message: str,  # noqa: ARG002 - the protocol's
    ) -> str:
        """Put files into a branch of their own."""
        return self.registry.write_branch(repo_id, branch, contents)

    def _tree(self, repo_id: str, reference: str) -> dict[str, str]:
        commit = self.registry.ref(repo_id, reference)
        return {} if commit is None else self.registry.tree(repo_id, commit)

    def _set_refs(self, repo_id: str, chosen: Version3, commit: str) -> bool:
        """Move the tag, then the branch of its major version, then main, each to its newest commit.

        The next publication repairs one that was killed between two of them, because all three
        follow from the tags.
        """
        registry = self.registry
        published = {*versions(registry.ref_names(repo_id)), chosen}
        moved = registry.set_ref(repo_id, tag_of(chosen), commit)
        newest_of_major = max(version for version in published if version[0] == chosen[0])
        for name, version in ((f"v{chosen[0]}", newest_of_major), ("main", max(published))):
            target = registry.ref(repo_id, tag_of(version)) or commit
            moved = registry.set_ref(repo_id, name, target) or moved
        return moved


def replaces(card: str, published: bytes | None) -> bool:
    """Whether a card takes the place of a published one: one that we generated not of an author's."""
    return published is None or GENERATED not in card or GENERATED.encode() in published


def contents_of(tree: Mapping[str, str]) -> Contents:
    """The variants of a commit, from its files."""
    contents: dict[str, dict[str, str]] = {}
    for path, digest in tree.items():
        if path.startswith("build/") and path.count("/") > 1:
            _, name, inner = path.split("/", 2)
            contents.setdefault(name, {})[inner] = digest
    return contents
