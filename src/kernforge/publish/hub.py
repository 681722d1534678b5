# SPDX-License-Identifier: Apache-2.0
"""Publish to a Hugging Face hub: one commit onto the branch ``v<major>``, one tag, and the card.

The card is ``README.md`` on ``main``. A publication that was interrupted between two of these steps
is finished by the next one. Each commit names its parent: if another publisher published meanwhile,
the hub refuses the commit and the publication begins again.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from kernforge._version import __version__
from kernforge.errors import KernforgeError, NotPublishedError, RegistryError, UsageError
from kernforge.project.card import GENERATED
from kernforge.publish.destination import CARD, Destination
from kernforge.registry.names import BENCHMARKS, SHA256, SOURCE, majors, versions
from kernforge.system import extras
from kernforge.system.digest import git_blob
from kernforge.system.environment import is_terminal
from kernforge.system.http import BusyError, again, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kernforge.publish.destination import Release
    from kernforge.publish.version import Tree
    from kernforge.registry.hub import HubRegistry
    from kernforge.registry.names import Version3

T = TypeVar("T")

# Other files of the folder of benchmarks are not from this publication.
_OWN = ("build/", f"{SOURCE}/", f"{BENCHMARKS}/benchmark")


class HubDestination(Destination):
    """A hub.

    Args:
        private: whether a kernel that is created is private; None takes the owner's default.
    """

    registry: HubRegistry

    def __init__(self, registry: HubRegistry, *, private: bool | None = None) -> None:
        extras.require(("huggingface_hub",), "publishing to a Hugging Face hub")
        import huggingface_hub  # noqa: PLC0415 - an extra, and slow

        super().__init__(registry)
        self._private = private
        self._hub: Any = huggingface_hub
        self._api = huggingface_hub.HfApi(
            endpoint=registry.hub.address,
            token=registry.hub.token() or False,
            library_name="kernforge",
            library_version=__version__,
            user_agent=registry.hub.endpoint.user_agent or None,
        )
        if not is_terminal(sys.stderr):
            huggingface_hub.utils.disable_progress_bars()

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Create the kernel if it does not exist; other publishers are not locked out."""
        self._call(self._api.create_repo, repo_id, private=self._private, exist_ok=True)
        if self._private and self._call(self._api.repo_info, repo_id).private is False:
            raise RegistryError(
                f"{repo_id} exists already and is public", hint="publish without --private"
            )
        yield

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag."""
        # None only for a preview: ``writing`` creates a kernel that does not exist.
        with contextlib.suppress(NotPublishedError):
            return again(lambda: self.registry.hub.refs(repo_id))
        return {}

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version.

        A branch of a major version without tags was published by another tool, or by a publication
        that was interrupted before its tag. It counts as version X.0.0.
        """
        tagged = super().versions(repo_id)
        untagged = set(majors(self.known)) - {version[0] for version in tagged}
        return tagged | {
            (major, 0, 0): commit
            for major in untagged
            if self.registry.variants(repo_id, commit := self.known[f"v{major}"])
        }

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:
        """The files of a commit.

        Args:
            local: files to publish, by hex SHA-256. The hub has other hashes of small files: the
                content of these files is named by SHA-256, other content by the hub's hash.
        """
        names = {git_blob(file): digest for digest, file in local.items()}
        return {
            path: entry.blob
            if SHA256.fullmatch(entry.blob)
            else names.get(entry.blob, f"git-{entry.blob}")
            for path, entry in self.registry.listing(repo_id, commit).items()
        }

    def upload(self, repo_id: str, release: Release) -> str:
        """Commit the release, and set its tag."""
        reference, version = release.reference, release.version
        # A commit of an older version must not be on the branch of the newest one.
        is_backport = version is not None and any(
            other[0] == version[0] and other > version for other in versions(self.known)
        )
        branch = f"publishing-{reference}" if is_backport else release.branch
        commit = self._commit(repo_id, branch, release)
        if version is not None:
            self._call(self._api.create_tag, repo_id, tag=reference, revision=commit)
        if is_backport:
            self._call(self._api.delete_branch, repo_id, branch=branch)
        return commit

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:  # noqa: ARG002
        """Commit the card to main; a generated card does not replace an author's."""
        if release.card is None:
            return False
        card, generated = release.card.encode(), GENERATED.encode()
        main = self.refs(repo_id)["main"]
        published = self.registry.small_file(repo_id, main, CARD)
        if published == card or (published and generated in card and generated not in published):
            return False
        try:
            operation = self._hub.CommitOperationAdd(CARD, card)
            self._send(repo_id, [operation], f"the card of {release.reference}", "main", main)
        except ValueError as error:
            if CARD not in str(error):
                raise
            raise RegistryError(
                f"the card of {repo_id}: {error}", hint="correct the front matter of CARD.md"
            ) from error
        return True

    def url(self, repo_id: str, reference: str) -> str:
        """The page of the version or branch."""
        return f"{self.registry.hub.address}/kernels/{repo_id}/tree/{reference}"

    def _commit(self, repo_id: str, branch: str, release: Release) -> str:
        """Make a commit with the files of the release; the branch's own if it has them already."""
        if branch not in self.known:
            start = self.known.get(release.branch, "main")
            create = self._api.create_branch
            self._call(create, repo_id, branch=branch, revision=start, exist_ok=True)
            self.known = self.refs(repo_id)
        head = self.known[branch]
        before, after = self.tree(repo_id, head, release.files), release.tree
        add, delete = self._hub.CommitOperationAdd, self._hub.CommitOperationDelete
        operations = [delete(p) for p in before if p.startswith(_OWN) and p not in after]
        operations += [
            add(path, str(release.files[digest]))
            for path, digest in after.items()
            if before.get(path) != digest
        ]
        return self._send(repo_id, operations, release.reference, branch, head)

    def _send(
        self, repo_id: str, operations: Sequence[Any], what: str, branch: str, parent: str
    ) -> str:
        """Make one commit. It names its parent, so that sending it twice makes only one commit."""
        commit: str = self._call(
            self._api.create_commit,
            repo_id,
            operations=operations,
            commit_message=f"Published by kernforge: {what}",
            revision=branch,
            parent_commit=parent,
        ).oid
        return commit

    def _call(self, method: Callable[..., T], repo_id: str, **options: object) -> T:
        """Call a method of ``HfApi`` for a kernel, with retries and our errors."""

        def call() -> T:
            try:
                return method(repo_id, repo_type="kernel", **options)
            except Exception as error:
                if translated := self._translated(error, repo_id):
                    raise translated from error
                raise

        return again(call)

    def _translated(self, error: Exception, repo_id: str) -> KernforgeError | None:
        """Our error for one of ``huggingface_hub``; None for any other error."""
        hub, errors = self.registry.hub.address, self._hub.errors
        # When one of several uploads fails, the client wraps its error.
        cause = error.__cause__ if type(error) is RuntimeError else error
        if isinstance(cause, errors.HfHubHTTPError):
            answer, reason = cause.response, cause.server_message or str(cause)
            http = self.registry.hub.http
            return http.refused(repo_id, answer.status_code, answer.headers, reason)
        if isinstance(cause, errors.HFValidationError):
            return UsageError(str(cause), hint="write a repo id like owner/name")
        # The base of the hub's own error is the base of its HTTP library's errors, whatever that
        # is called in this release. Uploads use another one.
        if isinstance(cause, (errors.HfHubHTTPError.__bases__[0], ConnectionError)):
            return BusyError(
                f"{hub} cannot be reached: {one_line(cause)}",
                hint="check the network, HF_ENDPOINT, HTTPS_PROXY and HF_HUB_OFFLINE",
            )
        return None
