# SPDX-License-Identifier: Apache-2.0
"""What a kind of registry must have, and what every registry does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernforge import untrusted
from kernforge.artifact.metadata import FILE
from kernforge.errors import RegistryError
from kernforge.registry.names import COMMIT, SOURCE

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Registry(ABC):
    """What a loader needs of a registry.

    Every method may raise ``RegistryError`` or ``NetworkError``. Asking for what does not exist is
    not an error where the result can say so: None, or an empty tuple.

    Attributes:
        url: its URL, for people to read.
    """

    url: str

    @abstractmethod
    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names."""

    @abstractmethod
    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""

    @abstractmethod
    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that can be listed, sorted: all, or those that a reference names."""

    @abstractmethod
    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""

    @abstractmethod
    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""

    @abstractmethod
    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without.

        A file that exists and cannot be read is an error: a signature that a broken network hides
        is not a missing signature.
        """

    @abstractmethod
    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """A local directory with a folder of a commit, whole and not yet verified; None without."""

    @abstractmethod
    def link_root(self, repo_id: str) -> Path:
        """The directory that no file of ``folder`` may lie outside of."""

    def is_trusted_publisher(self, owner: str) -> bool | None:  # noqa: ARG002 - a kind may know
        """Whether the registry marks an owner as a trusted publisher; None where it marks nobody.

        Raises:
            NetworkError: the registry cannot be reached.
        """
        return None

    def offline(self) -> Registry:
        """The same registry, restricted to what is on this machine."""
        return self

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``, without fetching the rest."""
        document = self.companion(repo_id, commit, variant, FILE)
        if document is None:
            raise RegistryError(
                f"build/{variant}/{FILE} of {repo_id} at {commit} is missing at {self.url}",
                hint="it is an old build, or not a build: build and publish the kernel again",
            )
        return document

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file beside ``metadata.json``, such as its signature."""
        return self.small_file(repo_id, commit, f"build/{variant}/{name}")

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """A local directory with a variant's files, not yet verified."""
        found = self.folder(repo_id, commit, f"build/{variant}")
        if found is None:
            raise RegistryError(
                f"build/{variant} of {repo_id} at {commit} is missing at {self.url}",
                hint="`kernforge info` lists the variants that it has",
            )
        return found

    def source(self, repo_id: str, commit: str) -> Path | None:
        """A local directory with the project that the variants were built from."""
        return self.folder(repo_id, commit, SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file in a listing.

    Attributes:
        size: bytes.
        blob: the name of its content in a cache: hex SHA-256 of a large file, git's hex SHA-1 of
            any other. The bytes that arrive must have this hash.
    """

    size: int
    blob: str


def valid_file(path: Any, size: Any, blob: Any) -> RemoteFile:
    """A file of a listing that somebody else wrote.

    Raises:
        ValueError: its path leaves its commit, or its content is not named by a hash.
        TypeError: one of them is of another type.
    """
    strange = any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable()
    plain = not strange and "\\" not in path and len(path) <= untrusted.NAME
    if not plain or not COMMIT.fullmatch(blob) or not 0 <= size <= untrusted.FILE:
        raise ValueError(
            f"the file {path[:200]!r} of {size} bytes with content {blob[:80]!r} is not valid"
        )
    return RemoteFile(size=int(size), blob=blob)


class Transport(Protocol):
    """What a kind of remote registry brings; ``RemoteRegistry`` does the rest with a cache.

    Attributes:
        address: of the server, for messages.
        cache: a directory that is laid out as ``DirectoryRegistry`` has it.
        is_offline: whether only the cache is used.
    """

    address: str
    cache: Path
    is_offline: bool

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits.

        Raises:
            NetworkError: the server cannot be reached.
            NotPublishedError: there is no such kernel, or it is not shown to this user.
        """
        ...

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path; None when there is no such commit.

        Raises:
            NetworkError: the server cannot be reached.
        """
        ...

    def download(
        self,
        repo_id: str,
        commit: str,
        path: str,
        file: RemoteFile,
        *,
        target: Path,
        advance: Callable[[int], None],
        ended: threading.Event,
    ) -> None:
        """Add the bytes of a file that its target lacks; the caller compares them with the listing.

        Args:
            target: a file that no other process uses, with what came before an interruption.
            advance: called with the number of bytes as they arrive; negative when they are
                discarded.
            ended: set by another thread to end the download soon, with a CancelledError. What
                arrived stays in the target.

        Raises:
            NetworkError: the download was interrupted.
        """
        ...
