# SPDX-License-Identifier: Apache-2.0
"""Publish to a Hugging Face hub: one commit onto the branch ``v<major>``, one tag, and the card.

The card is ``README.md`` on ``main``. A publication that was interrupted between two of these steps
is finished by the next one. Each commit names its parent: if another publisher published meanwhile,
the hub refuses the commit and the publication begins again.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, TypeVar

from kernforge.errors import NetworkError, NotPublishedError, RegistryError
from kernforge.project.card import GENERATED
from kernforge.publish.directory import CARD, Release, Written, contents_of
from kernforge.registry.hub_client import library
from kernforge.registry.names import BENCHMARKS, SHA256, SOURCE, majors, versions
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from huggingface_hub import CommitInfo

    from kernforge.publish.version import Contents
    from kernforge.registry.hub import HubRegistry
    from kernforge.registry.names import Version3

T = TypeVar("T")

# Other files of the folder of benchmarks are not from this publication.
_OWN = ("build/", f"{SOURCE}/", f"{BENCHMARKS}/benchmark")
_MESSAGE = "Published by kernforge"
PUBLISHING = "publishing-"
"""Begins the name of a branch on which a version is made that is older than the newest one."""


class HubDestination:
    """A hub to publish to.

    Args:
        private: whether a kernel that is created is private; None takes the owner's default.
        create_pr: open a pull request instead, for users without permission to write.
    """

    def __init__(
        self, registry: HubRegistry, *, private: bool | None = None, create_pr: bool = False
    ) -> None:
        self.registry = registry
        self._client = registry.client
        self._private = private
        self._create_pr = create_pr
        self._refs: dict[str, str] = {}

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Create the kernel if it does not exist; other publishers are not locked out."""
        if self.registry.endpoint.offline:
            raise NetworkError(
                f"{self.registry.endpoint.url} cannot be used: HF_HUB_OFFLINE is set",
                hint="unset HF_HUB_OFFLINE to publish",
            )
        api = self._client.api
        if not self._create_pr:
            self._call(api.create_repo, repo_id, private=self._private, exist_ok=True)
        if self._private:
            info = self._call(api.repo_info, repo_id)
            if info.private is False:
                raise RegistryError(
                    f"{repo_id} exists already and is public", hint="publish without --private"
                )
        with _progress_on_terminals_only():
            yield
        self.registry.forget(repo_id)

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version.

        A branch of a major version without tags was published by another tool, or by a publication
        that was interrupted before its tag. It counts as version X.0.0.
        """
        try:
            self._refs = self._client.refs(repo_id)
        except NotPublishedError:
            # Only for a preview: ``writing`` creates a kernel that does not exist.
            self._refs = {}
        found = {version: self._refs[tag] for version, tag in versions(self._refs).items()}
        untagged = set(majors(self._refs)) - {version[0] for version in found}
        return found | {
            (major, 0, 0): commit
            for major in untagged
            if self.registry.variants(repo_id, commit := self._refs[f"v{major}"])
        }

    def contents(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Contents:
        """The variants of a commit."""
        names = {git_blob(file): digest for digest, file in local.items()}
        return contents_of(self._tree(repo_id, commit, names))

    def write(self, repo_id: str, release: Release) -> Written:
        """Commit the release, then set its tag, then commit the card."""
        if self._create_pr:
            return self._propose(repo_id, release)
        tag, version = release.reference, release.version
        changed = version is None or tag not in self._refs
        if changed:
            older = version is not None and any(
                other[0] == version[0] and other > version for other in versions(self._refs)
            )
            onto = f"{PUBLISHING}{tag}" if older else release.branch
            info = self._commit(repo_id, onto, self._head(repo_id, onto, release), release)
            changed = info.oid != self._refs.get(onto) or version is not None
            commit = info.oid
            if version is not None:
                self._call(self._client.api.create_tag, repo_id, tag=tag, revision=commit)
            if older:
                self._call(self._client.api.delete_branch, repo_id, branch=onto)
        else:
            commit = self._refs[tag]
        card = self._card(repo_id, release)
        return Written(
            commit=commit,
            changed=changed or card is not None,
            url=f"{self.registry.endpoint.url}/kernels/{repo_id}/tree/{tag}",
        )

    # -- steps ------------------------------------------------------------------------------

    def _head(self, repo_id: str, branch: str, release: Release) -> str:
        """The commit of a branch, which is made if it does not exist."""
        if branch not in self._refs:
            start = self._refs.get(release.branch, "main")
            create = self._client.api.create_branch
            self._call(create, repo_id, branch=branch, revision=start, exist_ok=True)
            self._refs = self._client.refs(repo_id)
        return self._refs[branch]

    def _commit(
        self, repo_id: str, onto: str, head: str, release: Release, *, create_pr: bool = False
    ) -> CommitInfo:
        """Make a commit with the files of the release; the branch's own if it has them already."""
        names = {git_blob(file): digest for digest, file in release.files.items()}
        before, after = self._tree(repo_id, head, names), release.tree()
        operations: dict[str, str | bytes | None] = {
            path: None for path in before if path.startswith(_OWN) and path not in after
        }
        operations |= {
            path: str(release.files[digest])
            for path, digest in after.items()
            if before.get(path) != digest
        }
        message = f"{_MESSAGE}: {release.reference}"
        return self._send(repo_id, operations, message, onto=onto, head=head, create_pr=create_pr)

    def _send(
        self,
        repo_id: str,
        operations: Mapping[str, str | bytes | None],
        message: str,
        *,
        onto: str,
        head: str,
        create_pr: bool = False,
    ) -> CommitInfo:
        """Make one commit. It names its parent, so that sending it twice makes only one commit.

        Args:
            operations: a file's path or bytes by its path in the kernel; None deletes it.
        """
        hub, api = library(), self._client.api

        def send() -> CommitInfo:
            return api.create_commit(
                repo_id,
                [
                    hub.CommitOperationDelete(path_in_repo=path)
                    if file is None
                    else hub.CommitOperationAdd(path_in_repo=path, path_or_fileobj=file)
                    for path, file in operations.items()
                ],
                commit_message=message,
                repo_type="kernel",
                revision=onto,
                parent_commit=head,
                create_pr=create_pr,
            )

        return self._client.call(repo_id, send)

    def _call(self, method: Callable[..., T], repo_id: str, **named: object) -> T:
        """Call a method of the hub's own client for a kernel."""
        return self._client.call(repo_id, lambda: method(repo_id, repo_type="kernel", **named))

    def _card(self, repo_id: str, release: Release) -> CommitInfo | None:
        """Commit the card to main or open a pull request; None if main has this card already.

        A generated card does not take the place of an author's.
        """
        if release.card is None:
            return None
        card = release.card.encode()
        main = self._client.refs(repo_id)["main"]
        entry = self.registry.listing(repo_id, main).get(CARD)
        if entry is not None and entry.blob == git_blob(card):
            return None
        published = self.registry.small_file(repo_id, main, CARD)
        generated = GENERATED.encode()
        if published is not None and generated in card and generated not in published:
            return None
        message = f"{_MESSAGE}: the card of {release.reference}"
        try:
            return self._send(
                repo_id, {CARD: card}, message, onto="main", head=main, create_pr=self._create_pr
            )
        except ValueError as error:
            if CARD not in str(error):
                raise
            raise RegistryError(
                f"the card of {repo_id}: {error}", hint="correct the front matter of CARD.md"
            ) from error

    def _propose(self, repo_id: str, release: Release) -> Written:
        """Open pull requests: for the version onto its branch, and for the card onto main."""
        branch = release.branch
        head = self._head(repo_id, branch, release)
        info = self._commit(repo_id, branch, head, release, create_pr=True)
        card = self._card(repo_id, release)
        opened = [(branch, info.pr_url)] if info.pr_url else []
        if card is not None:
            opened.append(("main", card.pr_url or ""))
        return Written(
            commit=info.oid,
            changed=bool(opened),
            url=f"{self.registry.endpoint.url}/kernels/{repo_id}/tree/{branch}",
            pull_requests=tuple(opened),
        )

    def _tree(self, repo_id: str, commit: str, names: Mapping[str, str]) -> dict[str, str]:
        """Content hash by path in a commit: hex SHA-256, or ``git-`` and git's hash without one.

        Args:
            names: hex SHA-256 by git's hash, of files that are known.
        """
        listing = self.registry.listing(repo_id, commit)
        return {
            path: entry.blob
            if SHA256.fullmatch(entry.blob)
            else names.get(entry.blob, f"git-{entry.blob}")
            for path, entry in listing.items()
        }


@contextlib.contextmanager
def _progress_on_terminals_only() -> Iterator[None]:
    """Disable the hub's progress bars unless stderr is a terminal."""
    library()
    from huggingface_hub.utils import (  # noqa: PLC0415 - see hub_client.library
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    if sys.stderr.isatty() or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
