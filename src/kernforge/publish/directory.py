# SPDX-License-Identifier: Apache-2.0
"""Registries that can be written to: what each must have, and a registry in a directory.

The files of a version are written first and the references last, each reference by one atomic
write: a reader sees the old version or the new one, and an interrupted publication leaves the old
one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from kernforge.publish.version import Tree
from kernforge.registry.base import Registry
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import Version3, tag_of, versions
from kernforge.system.digest import sha256

CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version to write, or the state of a branch that is not a version's.

    Attributes:
        branch: the branch to write to: that of the major version, or another one.
        version: number of the version; None writes to the branch alone.
        tree: hex SHA-256 of all its files but the card, by path in the commit.
        files: the files, by hex SHA-256.
        card: Markdown that describes the kernel.
    """

    branch: str
    version: Version3 | None
    tree: Tree
    files: Mapping[str, Path]
    card: str | None

    @property
    def reference(self) -> str:
        """The tag of the version, or the branch if it is not a version's."""
        return self.branch if self.version is None else tag_of(self.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The result of writing a release: its commit, whether that is a change, its address."""

    commit: str
    changed: bool
    url: str


class Destination(ABC):
    """A registry that can be written to.

    Attributes:
        registry: the same, for reading.
    """

    registry: Registry

    @abstractmethod
    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Prepare to write to a kernel, which may not exist yet.

        Other publishers wait meanwhile if the registry has locks; if not, ``write`` detects them.
        """

    @abstractmethod
    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version."""

    @abstractmethod
    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:
        """The files of a commit.

        Args:
            local: files to publish, by hex SHA-256. Content for which a registry has another hash
                is named by its SHA-256 if it is one of these files, and by that other hash if not.
        """

    @abstractmethod
    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version, or the variants of a branch.

        A version that is published is not changed; what an interrupted publication left is
        finished.

        Raises:
            MovedError: another publisher has published since ``versions`` was called.
        """


class DirectoryDestination(Destination):
    """A registry in a directory: a lock separates publishers, renames keep reads consistent."""

    registry: DirectoryRegistry

    def __init__(self, registry: DirectoryRegistry) -> None:
        self.registry = registry

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Hold the lock for writing to this kernel."""
        return self.registry.writing(repo_id)

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version."""
        refs = self.registry.refs(repo_id)
        return {version: refs[tag] for version, tag in versions(refs).items()}

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:  # noqa: ARG002
        """The files of a commit."""
        return self.registry.tree(repo_id, commit)

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version: blobs, then the snapshot, then the references."""
        registry = self.registry
        commit = None if release.version is None else registry.ref(repo_id, release.reference)
        changed = False
        if commit is None:
            tree = dict(release.tree)
            if release.card is not None:
                tree[CARD] = sha256(release.card)
                registry.add_blob(repo_id, tree[CARD], release.card.encode())
            for digest, file in release.files.items():
                registry.add_blob(repo_id, digest, file)
            commit, changed = registry.add_snapshot(repo_id, tree)
        if release.version is None:
            changed = registry.set_ref(repo_id, release.branch, commit) or changed
        else:
            changed = self._set_refs(repo_id, release.version, commit) or changed
        url = registry.snapshot(repo_id, commit).as_uri()
        return Written(commit=commit, changed=changed, url=url)

    def _set_refs(self, repo_id: str, chosen: Version3, commit: str) -> bool:
        """Set the tag, then the branch of its major version, then main, each to its newest commit.

        The next publication repairs one that was killed between two of them, because all three
        follow from the tags.
        """
        registry = self.registry
        moved = registry.set_ref(repo_id, tag_of(chosen), commit)
        published = self.versions(repo_id)
        newest_of_major = max(version for version in published if version[0] == chosen[0])
        for name, version in ((f"v{chosen[0]}", newest_of_major), ("main", max(published))):
            moved = registry.set_ref(repo_id, name, published[version]) or moved
        return moved
