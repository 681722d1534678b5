# SPDX-License-Identifier: Apache-2.0
"""Publish to a Hugging Face hub.

A hub has no lock and cannot move a branch. The steps have this order, so that a publication may be
interrupted after each of them:

1. the kernel, if it does not exist;
2. the files, by one commit for each thousand files, onto the branch ``v<major>``. A new branch, or a
   version older than the newest, is first made on a temporary branch, so that users do not see a
   part of it;
3. the tag ``vX.Y.Z``. A tag must move if the version gets another variant. While it is removed, a
   second tag marks its target, so that the next publication restores it;
4. the card, as ``README.md`` on ``main``.

Variants that are published to another branch have no tag: step 2 is done on that branch.

Each commit names its parent: if another publisher published meanwhile, the hub refuses the commit
and the publication begins again.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from kernforge.errors import MovedError, NetworkError, NotPublishedError, RegistryError
from kernforge.publish.branch import PUBLISHING
from kernforge.publish.destination import CARD, Release, Written, contents_of, replaces
from kernforge.publish.hub_commits import Operation, batches, plan
from kernforge.registry.hub_client import library
from kernforge.registry.names import BENCHMARKS, SHA256, SOURCE, majors, versions
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from huggingface_hub import CommitInfo

    from kernforge.publish.destination import Published
    from kernforge.publish.version import Contents
    from kernforge.registry.hub import HubRegistry
    from kernforge.registry.names import Version3

T = TypeVar("T")
_Sent: TypeAlias = "tuple[str, str | bytes | None]"  # path, and a file's path, its bytes or None

_AWAY = "+moving"
_SCRIPTS = f"{BENCHMARKS}/benchmark"  # Other files of the folder are not from this publication.
_MESSAGE = "Published by kernforge"


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
        self._names: dict[str, str] = {}

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

    def published(self, repo_id: str, built: Contents, local: Mapping[str, Path]) -> Published:
        """The contents of every published version.

        A branch of a major version without tags was published by another tool. It counts as
        version X.0.0, with the variants that this publication does not replace.
        """
        self._read_refs(repo_id, local)
        published = {
            version: contents_of(self._tree(repo_id, self._refs[tag]))
            for version, tag in self._tags().items()
        }
        for major in majors(self._refs):
            if not any(version[0] == major for version in published):
                contents = contents_of(self._tree(repo_id, self._refs[f"v{major}"]))
                kept = {n: f for n, f in contents.items() if built.get(n, f) == f}
                if kept:
                    published[major, 0, 0] = kept
        return published

    def on_branch(self, repo_id: str, branch: str, local: Mapping[str, Path]) -> Contents | None:
        """The variants on a branch; None if there is no branch."""
        self._read_refs(repo_id, local)
        head = self._refs.get(branch)
        return None if head is None else contents_of(self._tree(repo_id, head))

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version or a branch in the order that the module's docstring describes."""
        if self._create_pr:
            return self._propose(repo_id, release)
        reference, branch = release.reference, release.branch
        apart = branch not in self._refs or self._is_older(release.version)
        onto, head = branch, self._refs.get(branch, "")
        if apart:
            onto = f"{PUBLISHING}{reference}"
            start = self._tag_target(reference) or self._refs.get(branch) or "main"
            head = self._have_branch(repo_id, onto, start)
        try:
            commit, changed = self._commit(repo_id, onto, head, release)
        except RegistryError as error:
            if apart and onto not in self._client.refs(repo_id):
                raise MovedError(
                    f"another publisher finished {branch} of {repo_id}", hint="publish again"
                ) from error
            raise
        if branch not in self._refs:
            created = self._have_branch(repo_id, branch, commit)
            changed = True
            if release.version is None and created != commit:
                raise MovedError(f"{branch} of {repo_id} was made meanwhile", hint="publish again")
        if release.version is not None:
            changed = self._set_tag(repo_id, reference, commit) or changed
        self._remove_branch(repo_id, f"{PUBLISHING}{reference}", exists=apart)
        card = self._card(repo_id, release)
        return Written(
            commit=commit,
            changed=changed or card is not None,
            url=f"{self.registry.endpoint.url}/kernels/{repo_id}/tree/{reference}",
        )

    def write_branch(
        self, repo_id: str, branch: str, contents: Mapping[str, bytes], *, message: str
    ) -> str:
        """Put files into a branch of their own, which begins as a copy of main."""
        head = self._client.refs(repo_id).get(branch) or self._have_branch(repo_id, branch, "main")
        info = self._send(repo_id, list(contents.items()), message, onto=branch, head=head)
        return str(info.oid)

    def _read_refs(self, repo_id: str, local: Mapping[str, Path]) -> None:
        """Read the references, and the names that a hub has for the contents of local files."""
        try:
            self._refs = self._client.refs(repo_id)
        except NotPublishedError:
            # Only for a preview: ``writing`` creates a kernel that does not exist.
            self._refs = {}
        self._names = {git_blob(file): digest for digest, file in local.items()}

    def _is_older(self, version: Version3 | None) -> bool:
        """Whether a newer version of the same major version is published."""
        return version is not None and any(
            tag[0] == version[0] and tag > version for tag in self._tags()
        )

    # -- steps ------------------------------------------------------------------------------

    def _commit(self, repo_id: str, onto: str, head: str, release: Release) -> tuple[str, bool]:
        """Commit the release to a branch; returns the commit, and whether it is new."""
        groups = self._groups(repo_id, head, release)
        for number, operations in enumerate(groups, 1):
            part = f" (part {number} of {len(groups)})" if len(groups) > 1 else ""
            message = f"{_MESSAGE}: {release.reference}{part}"
            head = self._send(repo_id, operations, message, onto=onto, head=head).oid
        return head, bool(groups)

    def _groups(self, repo_id: str, head: str, release: Release) -> list[list[_Sent]]:
        """The files to send to change a commit into the release, by commits to make."""
        whole = ["build"] if release.source is None else ["build", SOURCE]
        if release.benchmarks is not None:
            whole.append(_SCRIPTS)
        operations = plan(self._tree(repo_id, head), release.tree(), whole=whole)
        return [
            [(o.path, self._file(repo_id, release, o)) for o in group]
            for group in batches(operations)
        ]

    def _send(
        self,
        repo_id: str,
        operations: list[_Sent],
        message: str,
        *,
        onto: str,
        head: str | None,
        create_pr: bool = False,
    ) -> CommitInfo:
        """Make one commit. It names its parent, so that sending it twice makes only one commit."""
        hub, api = library(), self._client.api

        def send() -> CommitInfo:
            return api.create_commit(
                repo_id,
                [
                    hub.CommitOperationDelete(path_in_repo=path)
                    if file is None
                    else hub.CommitOperationAdd(path_in_repo=path, path_or_fileobj=file)
                    for path, file in operations
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

    def _file(self, repo_id: str, release: Release, operation: Operation) -> str | None:
        """A file to send, of the build or of the version that it is added to; None to delete it."""
        content = operation.content
        if content is None:
            return None
        if content in release.files:
            return str(release.files[content])
        commit = self._refs.get(release.reference) or self._refs[release.branch]
        _, variant, inner = operation.path.split("/", 2)
        return str(self.registry.fetch(repo_id, commit, variant) / inner)

    def _have_branch(self, repo_id: str, name: str, start: str) -> str:
        """Create a branch unless it exists; returns its commit."""
        create = self._client.api.create_branch
        self._call(create, repo_id, branch=name, revision=start, exist_ok=True)
        return self._client.refs(repo_id)[name]

    def _remove_branch(self, repo_id: str, name: str, *, exists: bool) -> None:
        """Remove a branch that exists, or that an interrupted publication left."""
        if exists or name in self._refs:
            self._call(self._client.api.delete_branch, repo_id, branch=name)

    def _tags(self) -> dict[Version3, str]:
        """The tag of each version; a removed tag counts at the commit that its mark names."""
        for name in list(self._refs):
            if name.endswith(_AWAY):
                self._refs.setdefault(name.removesuffix(_AWAY), self._refs[name])
        return versions(self._refs)

    def _tag_target(self, tag: str) -> str | None:
        return self._refs.get(f"{tag}{_AWAY}") or self._refs.get(tag)

    def _set_tag(self, repo_id: str, tag: str, commit: str) -> bool:
        """Set a tag to a commit; returns whether this changed the tag."""
        refs, mark = self._client.refs(repo_id), f"{tag}{_AWAY}"
        moves = refs.get(tag) not in {None, commit}
        if moves:
            if mark in refs:
                self._untag(repo_id, mark)
            self._tag(repo_id, mark, commit)
            self._untag(repo_id, tag)
        if refs.get(tag) != commit:
            self._tag(repo_id, tag, commit)
        if moves or mark in refs:
            self._untag(repo_id, mark)
        return refs.get(tag) != commit

    def _tag(self, repo_id: str, name: str, commit: str) -> None:
        create = self._client.api.create_tag
        self._call(create, repo_id, tag=name, revision=commit, exist_ok=True)

    def _untag(self, repo_id: str, name: str) -> None:
        self._call(self._client.api.delete_tag, repo_id, tag=name)

    def _card(self, repo_id: str, release: Release) -> CommitInfo | None:
        """Commit the card to main or open a pull request; None if main has this card already."""
        if release.card is None:
            return None
        card = release.card.encode()
        main = self._client.refs(repo_id)["main"]
        entry = self.registry.listing(repo_id, main).get(CARD)
        if entry is not None and entry.blob == git_blob(card):
            return None
        if not replaces(release.card, self.registry.small_file(repo_id, main, CARD)):
            return None
        message = f"{_MESSAGE}: the card of {release.reference}"
        try:
            return self._send(
                repo_id, [(CARD, card)], message, onto="main", head=main, create_pr=self._create_pr
            )
        except ValueError as error:
            if "README.md" not in str(error):
                raise
            raise RegistryError(
                f"the card of {repo_id}: {error}", hint="correct the front matter of CARD.md"
            ) from error

    def _propose(self, repo_id: str, release: Release) -> Written:
        """Open pull requests: for the version onto its branch, and for the card onto main."""
        branch = release.branch
        head = self._refs.get(branch) or self._have_branch(repo_id, branch, "main")
        opened: list[tuple[str, str]] = []
        onto, commit = branch, head
        for operations in self._groups(repo_id, head, release):
            first = onto == branch
            info = self._send(
                repo_id,
                operations,
                f"{_MESSAGE}: {release.reference}",
                onto=onto,
                head=head if first else None,
                create_pr=first,
            )
            commit = info.oid
            if first:
                onto = info.pr_revision or branch
                opened.append((branch, info.pr_url or ""))
        card = self._card(repo_id, release)
        if card is not None:
            opened.append(("main", card.pr_url or ""))
        return Written(
            commit=commit,
            changed=bool(opened),
            url=f"{self.registry.endpoint.url}/kernels/{repo_id}/tree/{branch}",
            pull_requests=tuple(opened),
        )

    def _tree(self, repo_id: str, commit: str) -> dict[str, str]:
        """Content hash by path in a commit: hex SHA-256, or ``git-`` and git's hash without one."""
        listing = self.registry.listing(repo_id, commit)
        return {
            path: entry.blob
            if SHA256.fullmatch(entry.blob)
            else self._names.get(entry.blob, f"git-{entry.blob}")
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
