# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry: what all kinds have in common, and a registry in a directory.

The files of a version are written first and the references last, each reference by one atomic
write: a reader sees the old version or the new one. The next publication finishes one that was
interrupted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.errors import RegistryError
from kernforge.publish.version import Tree
from kernforge.registry.directory import DirectoryRegistry, Registry
from kernforge.registry.listing import refuse_paths
from kernforge.registry.names import Version3, branches, directory_name, tag_of, versions
from kernforge.registry.remote import RemoteRegistry
from kernforge.system import files
from kernforge.system.digest import sha256

CARD = "README.md"


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


class Destination:
    """A registry to publish to.

    Attributes:
        known: the references when ``versions`` was called.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.known: Mapping[str, str] = {}

    def writing(self, repo_id: str) -> AbstractContextManager[None]:  # noqa: ARG002 - a default
        """Lock out other publishers, where that is possible."""
        return contextlib.nullcontext()

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version, also of one that is not finished."""
        self.known = self.refs(repo_id)
        return {version: self.known[tag] for version, tag in versions(self.known).items()}

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:  # noqa: ARG002
        """Hex SHA-256 of the files of a commit.

        Args:
            local: files to publish, by hex SHA-256.
        """
        return {path: file.blob for path, file in self.registry.listing(repo_id, commit).items()}

    def write(self, repo_id: str, release: Release) -> tuple[str, bool]:
        """Publish a version, or the variants of a branch.

        A published version is not changed; an interrupted publication is finished.

        Returns:
            The commit, and whether the publication is a change.

        Raises:
            IntegrityError: readers would refuse its files.
            MovedError: another publisher has published since ``versions`` was called.
        """
        before = self.known.get(release.reference)
        commit = None if release.version is None else before
        if commit is None:
            refuse_paths(f"{repo_id} {release.reference}", release.tree)
            commit = self.upload(repo_id, release)
        moved = self.finish(repo_id, release, commit)
        if isinstance(self.registry, RemoteRegistry):
            self.registry.forget(repo_id)
        return commit, moved or commit != before

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, as it is now."""
        raise NotImplementedError

    def upload(self, repo_id: str, release: Release) -> str:
        """Write the files of a release, and claim its version; returns the commit."""
        raise NotImplementedError

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:
        """Write what follows from the tags; returns whether that is a change."""
        raise NotImplementedError

    def url(self, repo_id: str, reference: str) -> str:  # noqa: ARG002 - a default
        """Where a user finds what was published."""
        return f"{self.registry.url}/{directory_name(repo_id)}"

    @contextlib.contextmanager
    def with_card(self, release: Release) -> Iterator[Release]:
        """The release with its card as one more file."""
        with files.staging(self.registry.root) as staged:
            if release.card is not None:
                digest, file = sha256(release.card), staged / CARD
                files.write_new(file, release.card)
                tree = {**release.tree, CARD: digest}
                release = replace(release, tree=tree, files={**release.files, digest: file})
            yield release


class DirectoryDestination(Destination):
    """A registry in a directory: a lock separates publishers, renames keep reads consistent."""

    registry: DirectoryRegistry

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Hold the lock for writing to a kernel, which may not exist yet."""
        return self.registry.writing(repo_id)

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag."""
        return self.registry.refs(repo_id)

    def upload(self, repo_id: str, release: Release) -> str:
        """Write the blobs, and then the snapshot by one rename."""
        with self.with_card(release) as whole:
            for digest, file in whole.files.items():
                self.registry.add_blob(repo_id, digest, file)
            return self.registry.add_snapshot(repo_id, whole.tree, whole.commit)

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:
        """Write the reference, the branches that follow from the tags, and the index files."""
        changed = self.registry.set_ref(repo_id, release.reference, commit)
        for name, target in branches(self.refs(repo_id)).items():
            changed = self.registry.set_ref(repo_id, name, target) or changed
        self.registry.write_index(repo_id, commit)
        return changed


def refuse_changed(file: Path, digest: str) -> None:
    """Refuse a file that a build wrote again while it was published."""
    if files.sha256_file(file) != digest:
        raise RegistryError(
            f"{file} changed while it was published", hint="publish again when nothing writes to it"
        )
