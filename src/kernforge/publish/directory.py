# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry in a directory.

The files of a version are written first and the references last, each reference by one atomic
write: a reader sees the old version or the new one, and an interrupted publication leaves the old
one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from kernforge.publish.version import Tree
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.names import Version3, branches, tag_of, versions
from kernforge.system.digest import sha256

CARD = "README.md"
Written: TypeAlias = tuple[str, bool, str]
"""The commit of a publication, whether it is a change, and its URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version to write, or the state of a branch without versions.

    Attributes:
        branch: the branch to write to: that of the major version, or another one.
        version: number of the version; None writes to the branch alone.
        tree: hex SHA-256 of all its files but the card, by path in the commit.
        files: the files, by hex SHA-256.
        commit: name of the commit in the registry that it is mirrored from. Directories and buckets
            keep it; elsewhere, and for None, it follows from the content.
    """

    branch: str
    version: Version3 | None
    tree: Tree
    files: Mapping[str, Path]
    card: str | None
    commit: str | None = None

    @property
    def reference(self) -> str:
        """The tag of the version, or the branch without versions."""
        return self.branch if self.version is None else tag_of(self.version)


class DirectoryDestination:
    """A registry in a directory: a lock separates publishers, renames keep reads consistent."""

    def __init__(self, registry: DirectoryRegistry) -> None:
        self._registry = registry

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Hold the lock for writing to a kernel, which may not exist yet."""
        return self._registry.writing(repo_id)

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version."""
        refs = self._registry.refs(repo_id)
        return {version: refs[tag] for version, tag in versions(refs).items()}

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:  # noqa: ARG002
        """The files of a commit."""
        return self._registry.tree(repo_id, commit)

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version, or the variants of a branch: blobs, the snapshot, then references.

        A published version is not changed; an interrupted publication is finished.
        """
        registry, version = self._registry, release.version
        commit = None if version is None else registry.ref(repo_id, release.reference)
        changed = False
        if commit is None:
            tree = dict(release.tree)
            if release.card is not None:
                tree[CARD] = sha256(release.card)
                registry.add_blob(repo_id, tree[CARD], release.card.encode())
            for digest, file in release.files.items():
                registry.add_blob(repo_id, digest, file)
            commit, changed = registry.add_snapshot(repo_id, tree, release.commit)
        changed = registry.set_ref(repo_id, release.reference, commit) or changed
        if version is not None:
            # The next publication repairs one that was killed here: all follows from the tags.
            for name, target in branches(registry.refs(repo_id)).items():
                changed = registry.set_ref(repo_id, name, target) or changed
        registry.write_index(repo_id, commit)
        return commit, changed, registry.snapshot(repo_id, commit).as_uri()
