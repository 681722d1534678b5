# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry in a bucket, where no lock separates publishers.

The files of a version are written first. Then the object ``refs/vX.Y.Z`` with its commit is
created, which only one publisher can: that claims the version. Readers see it once ``refs.json``
is replaced, under the condition that it did not change meanwhile. A publication that was
interrupted between the two is finished by the next one, which reads the claims.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernforge.errors import MovedError, NotPublishedError, RegistryError
from kernforge.publish.directory import CARD, Release, Written
from kernforge.publish.version import Tree
from kernforge.registry import listing
from kernforge.registry.directory import refuse_other_files
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import Version3, branches, directory_name, versions
from kernforge.registry.objects import ObjectTransport
from kernforge.registry.remote import RemoteRegistry, again
from kernforge.system.digest import key, sha256

_AT_ONCE = 8
_CONFLICTS = 50  # of other publications of the kernel while one replaces its references
_PART = 5 << 20  # bytes; a smaller file is one request


class ObjectDestination:
    """A bucket; the module says what is written in which order."""

    def __init__(self, registry: RemoteRegistry, transport: ObjectTransport) -> None:
        self._registry, self._bucket = registry, transport
        self._published: dict[Version3, str] = {}

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Other publishers are not locked out."""
        yield
        self._registry.forget(repo_id)

    def versions(self, repo_id: str) -> dict[Version3, str]:
        """The commit of every published version, also of one that is not finished."""
        refs = self._refs(repo_id)[0]
        self._published = {version: refs[tag] for version, tag in versions(refs).items()}
        return self._published

    def tree(self, repo_id: str, commit: str, local: Mapping[str, Path]) -> Tree:  # noqa: ARG002
        """The files of a commit."""
        return {path: file.blob for path, file in self._registry.listing(repo_id, commit).items()}

    def write(self, repo_id: str, release: Release) -> Written:
        """Publish a version, or the variants of a branch: files, the claim, then references.

        A published version is not changed; an interrupted publication is finished.

        Raises:
            MovedError: another publisher has published the version since ``versions`` was called.
        """
        version, changed = release.version, False
        commit = None if version is None else self._published.get(version)
        if commit is None:
            commit = self._upload(repo_id, release)
            changed = version is not None and self._claim(repo_id, release.reference, commit)
        branch = {release.branch: commit} if version is None else {}
        changed = self._replace_refs(repo_id, branch) or changed
        root = f"{self._bucket.address}/{directory_name(repo_id)}"
        return commit, changed, f"{root}/listings/{commit}.json"

    def _claim(self, repo_id: str, tag: str, commit: str) -> bool:
        """Create the object of a tag, which one of several publishers can."""
        try:
            self._put(repo_id, f"refs/{tag}", commit.encode(), mode="create")
        except MovedError:
            if self._claimed(repo_id, tag) != commit:
                raise
        return True

    def _upload(self, repo_id: str, release: Release) -> str:
        """Write the files of a commit that the bucket lacks, and their listing last."""
        local = {path: release.files[digest] for path, digest in release.tree.items()}
        found = {
            path: RemoteFile(size=file.stat().st_size, blob=release.tree[path])
            for path, file in local.items()
        }
        placed, packs = listing.pack(found, local)
        written: dict[str, tuple[int, Path | bytes]] = {
            f"blobs/{file.blob}": (file.size, local[path]) for path, file in found.items()
        }
        written |= {f"packs/{name}": (len(data), data) for name, data in packs.items()}
        if release.card is not None:
            card = release.card.encode()
            placed[CARD] = RemoteFile(size=len(card), blob=sha256(card))
            written[f"blobs/{placed[CARD].blob}"] = len(card), card
        tree = {path: file.blob for path, file in sorted(placed.items())}
        commit = release.commit or key("registry-commit", tree=tree)[:40]
        there = again(lambda: self._bucket.sizes(repo_id))
        if release.commit and f"listings/{commit}.json" in there:
            refuse_other_files(self._registry, repo_id, commit, tree)
        missing = [
            (path, content) for path, (size, content) in written.items() if there.get(path) != size
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(lambda each: self._put(repo_id, *each), missing))
        self._put(repo_id, f"listings/{commit}.json", listing.write_listing(placed).encode())
        return commit

    def _refs(self, repo_id: str) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
        """The references with the claims of unfinished versions; those of readers; their state."""
        stored: dict[str, str] = {}
        state: dict[str, str] = {}
        with contextlib.suppress(NotPublishedError):
            stored, state = again(lambda: self._bucket.stored_refs(repo_id))
        paths = again(lambda: self._bucket.sizes(repo_id, "refs"))
        tags = versions(path.removeprefix("refs/") for path in paths).values()
        refs = {tag: self._claimed(repo_id, tag) for tag in tags if tag not in stored} | stored
        return refs, stored, state

    def _claimed(self, repo_id: str, tag: str) -> str:
        data, _ = again(lambda: self._bucket.document(repo_id, f"refs/{tag}"))
        return data.decode()

    def _replace_refs(self, repo_id: str, branch: Mapping[str, str]) -> bool:
        """Write the references, if they change: all but other branches follow from the tags."""
        for _ in range(_CONFLICTS):
            refs, stored, state = self._refs(repo_id)
            refs |= branch
            refs |= branches(refs)
            if refs == stored:
                return False
            with contextlib.suppress(MovedError):
                data = listing.write_refs(refs).encode()
                self._put(repo_id, listing.REFS, data, mode=state or "create")
                return True
        raise MovedError(f"others publish {repo_id} all the time", hint="publish again later")

    def _put(self, repo_id: str, path: str, content: Path | bytes, mode: Any = "overwrite") -> None:
        """Write one object; a large file is read part by part."""
        import obstore  # noqa: PLC0415 - an extra

        # Google shows public objects for an hour after they were replaced, if nothing else is said.
        cache: Any = {"Cache-Control": "no-cache"} if path == listing.REFS else None

        def put() -> None:
            data: Any = content
            if isinstance(content, Path):
                data = _checked(content, path.rpartition("/")[2])
                data = data if content.stat().st_size > _PART else b"".join(data)
            name = f"{directory_name(repo_id)}/{path}"
            with self._bucket.asking(repo_id):
                obstore.put(
                    self._bucket.store, name, data, mode=mode, attributes=cache, max_concurrency=4
                )

        again(put)


def _checked(file: Path, digest: str) -> Iterator[bytes]:
    """The parts of a file; the last one ends an upload of other bytes than the digest's."""
    hasher = hashlib.sha256()
    with file.open("rb") as stream:
        while part := stream.read(_PART):
            hasher.update(part)
            yield part
    if hasher.hexdigest() != digest:
        raise RegistryError(
            f"{file} changed while it was published", hint="publish again when nothing writes to it"
        )
