# SPDX-License-Identifier: Apache-2.0
"""What a registry must have, and what every registry does with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import FILE
from kernforge.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class Registries(ABC):
    """Where kernels are looked for: one registry, or several in an order.

    Attributes:
        url: its URL, for people to read.
    """

    url: str

    @property
    @abstractmethod
    def members(self) -> tuple[Registry, ...]:
        """The registries, in order."""

    @abstractmethod
    def member(self, repo_id: str) -> Registry:
        """The one registry that is used for a kernel."""

    @abstractmethod
    def offline(self) -> Registries:
        """The same, restricted to what is on this machine."""


class Registry(Registries):
    """What a loader needs of a registry.

    Every method may raise ``RegistryError`` or ``NetworkError``. Asking for what does not exist is
    not an error where the result can say so: None, or an empty tuple.

    Attributes:
        unasked: address of the server of which only the downloads are seen; empty elsewhere.
    """

    unasked = ""

    @property
    def members(self) -> tuple[Registry, ...]:
        """The registry itself."""
        return (self,)

    def member(self, repo_id: str) -> Registry:  # noqa: ARG002 - it is used for every kernel
        """The registry itself."""
        return self

    def offline(self) -> Registry:
        """The same registry, restricted to what is on this machine."""
        return self

    @abstractmethod
    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name."""

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names."""
        return self.refs(repo_id).get(name)

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

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``.

        Raises:
            RegistryError: there is none.
        """
        document = self.small_file(repo_id, commit, f"build/{variant}/{FILE}")
        if document is None:
            raise RegistryError(
                f"build/{variant}/{FILE} of {repo_id} at {commit} is missing at {self.url}",
                hint="it is an old build, or not a build: build and publish the kernel again",
            )
        return document

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """A local directory with a variant's files, not yet verified.

        Raises:
            RegistryError: there is no such variant.
        """
        found = self.folder(repo_id, commit, f"build/{variant}")
        if found is None:
            raise RegistryError(
                f"build/{variant} of {repo_id} at {commit} is missing at {self.url}",
                hint="`kernforge info` lists the variants that it has",
            )
        return found
