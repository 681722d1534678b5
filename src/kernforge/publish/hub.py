# SPDX-License-Identifier: Apache-2.0
"""Publish to a Hugging Face hub: one commit onto the branch ``v<major>``, one tag, and the card.

The card is ``README.md`` on ``main``. A publication that was interrupted between two of these steps
is finished by the next one. Each commit names its parent: if another publisher published meanwhile,
the hub refuses the commit and the publication begins again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any, TypeVar

from kernforge._version import __version__
from kernforge.errors import NotPublishedError, RegistryError, UsageError
from kernforge.project.card import GENERATED
from kernforge.publish.directory import CARD, Destination, Release, Written
from kernforge.registry.hub import one_line, refused
from kernforge.registry.names import BENCHMARKS, SHA256, SOURCE, majors, versions
from kernforge.registry.remote import BusyError, again
from kernforge.system import extras
from kernforge.system.digest import git_blob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kernforge.publish.version import Tree
    from kernforge.registry.hub import HubRegistry
    from kernforge.registry.names import Version3

T = TypeVar("T")

# Other files of the folder of benchmarks are not from this publication.
_OWN = ("build/", f"{SOURCE}/", f"{BENCHMARKS}/benchmark")
_MESSAGE = "Published by kernforge"
PUBLISHING = "publishing-"
"""Begins the name of a branch on which a version is made that is older than the newest one."""


class HubDestination(Destination):
    """A hub to publish to.

    Args:
        private: whether a kernel that is created is private; None takes the owner's default.

    Raises:
        MissingPackageError: ``huggingface_hub`` is not installed.
    """

    registry: HubRegistry

    def __init__(self, registry: HubRegistry, *, private: bool | None = None) -> None:
        extras.require_tls("a Hugging Face hub")
        extras.require(("huggingface_hub",), "publishing to a Hugging Face hub")
        import huggingface_hub  # noqa: PLC0415 - an extra, and slow

        self.registry = registry
        self._private = private
        self._refs: dict[str, str] = {}
        self._hub: Any = huggingface_hub
        self._api = huggingface_hub.HfApi(
            endpoint=registry.hub.address,
            token=registry.hub.token() or False,
            library_name="kernforge",
            library_version=__version__,
            user_agent=registry.hub.endpoint.user_agent or None,
        )
        if not sys.stderr.isatty():
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
        self.registry.forget(repo_id)

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version.

        A branch of a major version without tags was published by another tool, or by a publication
        that was interrupted before its tag. It counts as version X.0.0.
        """
        # Only for a preview: ``writing`` creates a kernel that does not exist.
        with contextlib.suppress(NotPublishedError):
            self._read_refs(repo_id)
        found = {version: self._refs[tag] for version, tag in versions(self._refs).items()}
        untagged = set(majors(self._refs)) - {version[0] for version in found}
        return found | {
            (major, 0, 0): commit
            for major in untagged
            if self.registry.variants(repo_id, commit := self._refs[f"v{major}"])
        }

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:
        """The files of a commit."""
        names = {git_blob(file): digest for digest, file in local.items()}
        return {
            path: entry.blob
            if SHA256.fullmatch(entry.blob)
            else names.get(entry.blob, f"git-{entry.blob}")
            for path, entry in self.registry.listing(repo_id, commit).items()
        }

    def write(self, repo_id: str, release: Release) -> Written:
        """Commit the release, then set its tag, then commit the card."""
        tag, version = release.reference, release.version
        changed = version is None or tag not in self._refs
        if changed:
            older = version is not None and any(
                other[0] == version[0] and other > version for other in versions(self._refs)
            )
            onto = f"{PUBLISHING}{tag}" if older else release.branch
            commit = self._commit(repo_id, onto, self._head(repo_id, onto, release), release)
            changed = commit != self._refs.get(onto) or version is not None
            if version is not None:
                self._call(self._api.create_tag, repo_id, tag=tag, revision=commit)
            if older:
                self._call(self._api.delete_branch, repo_id, branch=onto)
        else:
            commit = self._refs[tag]
        changed = self._write_card(repo_id, release) or changed
        url = f"{self.registry.hub.address}/kernels/{repo_id}/tree/{tag}"
        return Written(commit=commit, changed=changed, url=url)

    # -- steps ------------------------------------------------------------------------------

    def _read_refs(self, repo_id: str) -> None:
        self._refs = again(lambda: self.registry.hub.refs(repo_id))

    def _head(self, repo_id: str, branch: str, release: Release) -> str:
        """The commit of a branch, which is made if it does not exist."""
        if branch not in self._refs:
            start = self._refs.get(release.branch, "main")
            create = self._api.create_branch
            self._call(create, repo_id, branch=branch, revision=start, exist_ok=True)
            self._read_refs(repo_id)
        return self._refs[branch]

    def _commit(self, repo_id: str, onto: str, head: str, release: Release) -> str:
        """Make a commit with the files of the release; the branch's own if it has them already."""
        before, after = self.tree(repo_id, head, release.files), release.tree
        operations: dict[str, str | bytes | None] = {
            path: None for path in before if path.startswith(_OWN) and path not in after
        }
        operations |= {
            path: str(release.files[digest])
            for path, digest in after.items()
            if before.get(path) != digest
        }
        return self._send(repo_id, operations, release.reference, onto, head)

    def _send(
        self,
        repo_id: str,
        operations: Mapping[str, str | bytes | None],
        what: str,
        onto: str,
        head: str,
    ) -> str:
        """Make one commit. It names its parent, so that sending it twice makes only one commit.

        Args:
            operations: a file's path or bytes by its path in the kernel; None deletes it.
        """
        commit: str = self._call(
            self._api.create_commit,
            repo_id,
            operations=[
                self._hub.CommitOperationDelete(path_in_repo=path)
                if file is None
                else self._hub.CommitOperationAdd(path_in_repo=path, path_or_fileobj=file)
                for path, file in operations.items()
            ],
            commit_message=f"{_MESSAGE}: {what}",
            revision=onto,
            parent_commit=head,
        ).oid
        return commit

    def _write_card(self, repo_id: str, release: Release) -> bool:
        """Commit the card to main; returns whether that is a change.

        A generated card does not take the place of an author's.
        """
        if release.card is None:
            return False
        card, generated = release.card.encode(), GENERATED.encode()
        self._read_refs(repo_id)
        main = self._refs["main"]
        published = self.registry.small_file(repo_id, main, CARD)
        if published == card or (published and generated in card and generated not in published):
            return False
        try:
            self._send(repo_id, {CARD: card}, f"the card of {release.reference}", "main", main)
        except ValueError as error:
            if CARD not in str(error):
                raise
            raise RegistryError(
                f"the card of {repo_id}: {error}", hint="correct the front matter of CARD.md"
            ) from error
        return True

    def _call(self, method: Callable[..., T], repo_id: str, **named: object) -> T:
        """Call a method of the hub's own client for a kernel; its errors become ours."""
        return again(functools.partial(self._call_once, method, repo_id, **named))

    def _call_once(self, method: Callable[..., T], repo_id: str, **named: object) -> T:
        hub, errors = self.registry.hub.address, self._hub.errors
        try:
            return method(repo_id, repo_type="kernel", **named)
        except Exception as error:
            # When one of several uploads fails, the client wraps its error.
            cause = error.__cause__ if type(error) is RuntimeError else error
            if isinstance(cause, errors.HfHubHTTPError):
                answer, said = cause.response, cause.server_message or str(cause)
                status, headers = answer.status_code, answer.headers
                raise refused(hub, repo_id, status, headers, said, writing=True) from error
            if isinstance(cause, errors.HFValidationError):
                raise UsageError(str(cause), hint="write a repo id like owner/name") from error
            # The base of the hub's own error is the base of its HTTP library's errors, whatever
            # that is called in this release. Uploads use another one.
            if isinstance(cause, (errors.HfHubHTTPError.__bases__[0], ConnectionError)):
                raise BusyError(
                    f"{hub} cannot be reached: {one_line(cause)}",
                    hint="check the network, HF_ENDPOINT, HTTPS_PROXY and HF_HUB_OFFLINE",
                ) from error
            raise
