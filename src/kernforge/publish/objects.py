# SPDX-License-Identifier: Apache-2.0
"""Publish to a registry in a bucket, where no lock separates publishers.

The files of a version are written first. Then the object ``refs/vX.Y.Z`` with its commit is
created, which only one publisher can: that claims the version. Readers see it once ``refs.json``
is replaced, under the condition that it did not change meanwhile. A publication that was
interrupted between the two is finished by the next one, which reads the claims.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernforge.errors import MovedError, NotPublishedError
from kernforge.publish.destination import Destination, Release, refuse_changed
from kernforge.registry import listing
from kernforge.registry.directory import refuse_other_files
from kernforge.registry.listing import RemoteFile
from kernforge.registry.names import branches, directory_name, versions
from kernforge.registry.objects import ObjectTransport
from kernforge.registry.remote import RemoteRegistry
from kernforge.system.digest import key
from kernforge.system.http import again

_AT_ONCE = 8
_CONFLICTS = 50  # of other publications of the kernel while one replaces its references


class ObjectDestination(Destination):
    """A bucket; the module says what is written in which order."""

    def __init__(self, registry: RemoteRegistry, transport: ObjectTransport) -> None:
        super().__init__(registry)
        self._bucket = transport

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, with the claims of unfinished versions."""
        return self._refs(repo_id)[0]

    def upload(self, repo_id: str, release: Release) -> str:
        """Write the files that the bucket lacks, their listing, and the claim of a version."""
        with self.with_card(release) as whole:
            local = {path: whole.files[digest] for path, digest in whole.tree.items()}
            found = {
                path: RemoteFile(size=file.stat().st_size, blob=whole.tree[path])
                for path, file in local.items()
            }
            placed, packs = listing.pack(found, local)
            commit = release.commit or key("registry-commit", tree=whole.tree)[:40]
            there = again(lambda: self._bucket.sizes(repo_id))
            if release.commit and f"listings/{commit}.json" in there:
                refuse_other_files(self.registry, repo_id, commit, whole.tree)
            objects: dict[str, Path | bytes] = {
                **{f"blobs/{digest}": file for digest, file in whole.files.items()},
                **{f"packs/{digest}": data for digest, data in packs.items()},
            }
            missing = [path for path in objects if path not in there]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                list(pool.map(lambda path: self._put(repo_id, path, objects[path]), missing))
        self._put(repo_id, f"listings/{commit}.json", listing.write_listing(placed).encode())
        if release.version is not None:
            self._claim(repo_id, release.reference, commit)
        return commit

    def finish(self, repo_id: str, release: Release, commit: str) -> bool:
        """Replace the references, if they change: all but other branches follow from the tags."""
        for _ in range(_CONFLICTS):
            refs, stored, state = self._refs(repo_id)
            refs[release.reference] = commit
            refs |= branches(refs)
            if refs == stored:
                return False
            with contextlib.suppress(MovedError):
                data = listing.write_refs(refs).encode()
                self._put(repo_id, listing.REFS, data, mode=state or "create")
                return True
        raise MovedError(f"others publish {repo_id} all the time", hint="publish again later")

    def _claim(self, repo_id: str, tag: str, commit: str) -> None:
        """Create the object of a tag, which one of several publishers can."""
        try:
            self._put(repo_id, f"refs/{tag}", commit.encode(), mode="create")
        except MovedError:
            if self._claimed(repo_id, tag) != commit:
                raise

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

    def _put(self, repo_id: str, path: str, content: Path | bytes, mode: Any = "overwrite") -> None:
        """Write one object; a large file is sent in parts."""
        import obstore  # noqa: PLC0415 - an extra

        # Google shows public objects for an hour after they were replaced, if nothing else is said.
        cache: Any = {"Cache-Control": "no-cache"} if path == listing.REFS else None

        def put() -> None:
            if isinstance(content, Path):
                refuse_changed(content, path.rpartition("/")[2])
            with self._bucket.asking(repo_id):
                obstore.put(
                    self._bucket.store,
                    f"{directory_name(repo_id)}/{path}",
                    content,
                    mode=mode,
                    attributes=cache,
                    max_concurrency=4,
                )

        again(put)
