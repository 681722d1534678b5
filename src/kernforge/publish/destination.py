# SPDX-License-Identifier: Apache-2.0
"""Where a version is published to: what any kind of registry must be able to do, and a directory.

Everything that a reference will name is written first, the references last and each by one atomic
write: a reader sees the old version or the new one, and a publisher that dies leaves the old.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kernforge.registry.names import BENCHMARKS, SOURCE, Version3, tag_of, versions
from kernforge.system.digest import sha256

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from kernforge.publish.version import Contents
    from kernforge.registry.api import Registry
    from kernforge.registry.directory import DirectoryRegistry

CARD = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a version shall be.

    Attributes:
        version: its number.
        contents: all its variants; what was published before may be among them.
        files: what is new or may be, by hex SHA-256.
        card: Markdown that describes the kernel; None keeps the one that is there.
        source: path in the project to hex SHA-256, of what the variants were built from; None
            keeps what is there.
        benchmarks: file name to hex SHA-256 of the scripts that measure it; None keeps those that
            are there.
    """

    version: Version3
    contents: Contents
    files: Mapping[str, Path]
    card: str | None = None
    source: Mapping[str, str] | None = None
    benchmarks: Mapping[str, str] | None = None

    def tree(self) -> dict[str, str]:
        """Path in the commit to hex SHA-256 of all that this decides but the card."""
        tree = {
            f"build/{name}/{path}": digest
            for name, paths in self.contents.items()
            for path, digest in paths.items()
        }
        tree |= {f"{SOURCE}/{path}": digest for path, digest in (self.source or {}).items()}
        return tree | {f"{BENCHMARKS}/{n}": digest for n, digest in (self.benchmarks or {}).items()}

    @property
    def kept(self) -> tuple[str, ...]:
        """Beginnings of the paths of an older commit of the version that stay as they are."""
        parts = ((SOURCE, self.source), (BENCHMARKS, self.benchmarks))
        return tuple(f"{folder}/" for folder, new in parts if new is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of a release.

    Attributes:
        commit: what the version names now; of a pull request, its last commit.
        changed: whether the registry differs from before.
        url: where people see it.
        branch: the branch of its major version.
        pull_requests: the branch and URL of each that was opened instead of publishing.
    """

    commit: str
    changed: bool
    url: str
    branch: str
    pull_requests: tuple[tuple[str, str], ...] = field(default=())


class Destination(Protocol):
    """A registry that can be written to."""

    @property
    def registry(self) -> Registry:
        """The same, to be read."""
        ...

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Get ready to write to a kernel, which need not be there yet.

        Where the registry can, others wait meanwhile; where it cannot, ``write`` notices them.
        """
        ...

    def published(self, repo_id: str, built: Contents, local: Mapping[str, Path]) -> Published:
        """What every published version holds.

        Args:
            repo_id: ``owner/name``.
            built: what is about to be published.
            local: its files by hex SHA-256. Content that a registry knows by another name only
                is called by its SHA-256 if it is one of these, and by that other name if not.
        """
        ...

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version.

        Raises:
            MovedError: somebody else published since ``published`` was asked.
        """
        ...


if TYPE_CHECKING:
    Published = dict[Version3, Contents]


class DirectoryDestination:
    """A directory: a lock keeps publishers apart, renames keep readers whole."""

    def __init__(self, registry: DirectoryRegistry) -> None:
        self.registry = registry

    def writing(self, repo_id: str) -> AbstractContextManager[None]:
        """Be the only one who writes to this kernel."""
        return self.registry.writing(repo_id)

    def published(
        self,
        repo_id: str,
        built: Contents,  # noqa: ARG002 - the protocol's
        local: Mapping[str, Path],  # noqa: ARG002 - the protocol's
    ) -> Published:
        """What every published version holds."""
        return {
            version: contents_of(self._tree(repo_id, version))
            for version in versions(self.registry.ref_names(repo_id))
        }

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version: blobs, then the snapshot, then the references."""
        registry = self.registry
        before = versions(registry.ref_names(repo_id))
        tree = release.tree()
        for path, digest in self._tree(repo_id, release.version).items():
            if path == CARD or path.startswith(release.kept):
                tree[path] = digest
        if release.card is not None:
            tree[CARD] = sha256(release.card)
            registry.add_blob(repo_id, tree[CARD], release.card.encode())
        for digest, file in release.files.items():
            registry.add_blob(repo_id, digest, file)
        commit, created = registry.add_snapshot(repo_id, tree)
        moved = self._set_refs(repo_id, {*before, release.version}, release.version, commit)
        return Written(
            commit=commit,
            changed=created or moved,
            url=registry.snapshot(repo_id, commit).as_uri(),
            branch=f"v{release.version[0]}",
        )

    def _tree(self, repo_id: str, version: Version3) -> dict[str, str]:
        commit = self.registry.ref(repo_id, tag_of(version))
        return {} if commit is None else self.registry.tree(repo_id, commit)

    def _set_refs(
        self, repo_id: str, published: set[Version3], chosen: Version3, commit: str
    ) -> bool:
        """Move the tag, then the branch of its major version, then main, each to its newest.

        A publisher killed between two of them is mended by the next: all three follow from the
        tags.
        """
        registry = self.registry
        moved = registry.set_ref(repo_id, tag_of(chosen), commit)
        newest_of_major = max(version for version in published if version[0] == chosen[0])
        for name, version in ((f"v{chosen[0]}", newest_of_major), ("main", max(published))):
            target = registry.ref(repo_id, tag_of(version)) or commit
            moved = registry.set_ref(repo_id, name, target) or moved
        return moved


def contents_of(tree: Mapping[str, str]) -> Contents:
    """The variants of a commit, from its files."""
    found: dict[str, dict[str, str]] = {}
    for path, digest in tree.items():
        if path.startswith("build/") and path.count("/") > 1:
            _, name, inner = path.split("/", 2)
            found.setdefault(name, {})[inner] = digest
    return found
