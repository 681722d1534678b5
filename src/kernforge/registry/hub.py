# SPDX-License-Identifier: Apache-2.0
"""A registry on a Hugging Face hub, read through the cache that the hub's own tools use.

A kernel is a repository of type ``kernel``: a branch ``v<major>`` and tags ``vX.Y.Z`` hold
``build/<variant>/<file>``. A cold load requests the references, the listing of the commit, and each
file that the cache lacks; a listing has every file's hash, so no file needs a request for its hash.
A load by commit needs no references, and no request at all once its files are in the cache.

Files that arrive are compared with the hash of the listing before they get their name in the
cache, and a variant appears in its snapshot complete, by one rename.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kernforge import untrusted
from kernforge.artifact.integrity import is_bytecode
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    StorageError,
    UsageError,
)
from kernforge.registry.directory import PART, DirectoryRegistry, refuse_other_bytes
from kernforge.registry.hub_client import (
    HubClient,
    HubFile,
    library,
    progress_bar,
    valid_file,
)
from kernforge.registry.names import COMMIT, SOURCE, check_repo_id, is_ref
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.registry.hub_endpoint import HubEndpoint

_REFS_LAST_S = 60.0
_AT_ONCE = 8
_LISTING = 1

log = logging.getLogger("kernforge")


class HubRegistry:
    """A hub; the module says which requests a load makes.

    A branch or tag that was found keeps its commit for the life of a process: a model of many
    layers is one request, and a server does not change its kernels while it runs. Lists of
    references, and names that were not found, are requested at most once a minute. When a hub
    cannot be reached, the references in the cache are used, with a warning.
    """

    def __init__(self, endpoint: HubEndpoint, client: HubClient | None = None) -> None:
        self.endpoint = endpoint
        self.url = f"hf+{endpoint.url}"
        self.client = client or HubClient(endpoint)
        self._cache = DirectoryRegistry(endpoint.cache)
        self._refs: dict[str, tuple[float, dict[str, str]]] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._listings: dict[tuple[str, str], Mapping[str, HubFile]] = {}
        self._asking = threading.RLock()

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels that its cache on this machine holds, sorted."""
        return self._cache.repo_ids()

    def search(self, text: str, limit: int) -> tuple[str, ...]:
        """The kernels of the hub that it finds for a text, the hub's best first.

        Raises:
            RegistryError: requests are not allowed.
            NetworkError: the hub cannot be reached.
        """
        if self.endpoint.offline:
            raise RegistryError(
                f"{self.endpoint.url} is not asked: HF_HUB_OFFLINE is set",
                hint="unset it, or list what is on this machine: kernforge search --local",
            )
        return self.client.search(text, limit)

    def lacks(self) -> UsageError | None:
        """What requests need and this Python lacks; None where all is there."""
        if self.endpoint.offline:
            return None
        try:
            library()
        except UsageError as error:
            return error
        return None

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        if self.endpoint.offline:
            return self._cache.ref(repo_id, name) or self._unnamed(repo_id).get(name)
        with self._asking:
            commit = self._named.get((repo_id, name)) or self._known_refs(repo_id).get(name)
            if commit:
                self._named[repo_id, name] = commit
            return commit

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        if self.endpoint.offline:
            return tuple(sorted({*self._cache.ref_names(repo_id), *self._unnamed(repo_id)}))
        return tuple(sorted(self._known_refs(repo_id)))

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that references name and those in the cache, sorted."""
        named = () if self.endpoint.offline else self._known_refs(repo_id).values()
        return tuple(sorted({*named, *self._cache.commits(repo_id)}))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        if self.endpoint.offline:
            return self._cache.has_commit(repo_id, commit)
        return self._find_listing(repo_id, commit) is not None

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        if self.endpoint.offline:
            return self._cache.variants(repo_id, commit)
        paths = (path.split("/") for path in self.listing(repo_id, commit))
        return tuple(sorted({p[1] for p in paths if p[0] == "build" and len(p) > 2}))  # noqa: PLR2004

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``."""
        document = self.companion(repo_id, commit, variant, FILE)
        if document is None:
            raise RegistryError(
                f"build/{variant}/{FILE} of {repo_id} at {commit} is missing at {self.url}",
                hint="it is an old build, or not a build: build and publish the kernel again",
            )
        return document

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file of a variant; None without."""
        return self.small_file(repo_id, commit, f"build/{variant}/{name}")

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        if self.endpoint.offline:
            return self._cache.small_file(repo_id, commit, path)
        file = self.listing(repo_id, commit).get(path)
        if file is None:
            return None
        if not self._has_blob(repo_id, file):
            with self._cache.writing(repo_id):
                if not self._has_blob(repo_id, file):  # another process may have been first
                    self._download(repo_id, commit, {path: file}, lambda _count: None)
        data = (self._cache.repo(repo_id) / "blobs" / file.blob).read_bytes()
        refuse_other_bytes(f"{path} of {repo_id}", file.blob, data)
        return data

    def trusted_publisher(self, owner: str) -> bool | None:
        """Whether the hub marks an organisation as a trusted publisher of kernels.

        Raises:
            NetworkError: the hub cannot be reached.
        """
        if self.endpoint.offline:
            raise NetworkError(
                f"{self.endpoint.url} is not asked, so it cannot vouch for {owner}: HF_HUB_OFFLINE "
                "is set",
                hint="allow the kernel by name, or load it once while the hub can be reached",
            )
        return self.client.trusts(owner)

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """The directory of a variant in the cache, with all the files that the hub lists for it."""
        if not self.endpoint.offline:
            self._fetch(repo_id, commit, f"build/{variant}")
        return self._cache.fetch(repo_id, commit, variant)

    def source(self, repo_id: str, commit: str) -> Path | None:
        """The directory of a commit's sources in the cache, whole; None without."""
        return self.folder(repo_id, commit, SOURCE)

    def folder(self, repo_id: str, commit: str, name: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        if self.endpoint.offline:
            return self._cache.folder(repo_id, commit, name)
        return self._fetch(repo_id, commit, name)

    def offline(self) -> HubRegistry:
        """The same hub, restricted to its cache."""
        return HubRegistry(dataclasses.replace(self.endpoint, offline=True))

    def _fetch(self, repo_id: str, commit: str, folder: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        listing = self.listing(repo_id, commit)
        wanted = {
            path: file
            for path, file in listing.items()
            if path.startswith(f"{folder}/") and not is_bytecode(path)
        }
        if not wanted:
            return None
        final = self._cache.snapshot(repo_id, commit) / folder
        if not self._is_complete(repo_id, commit, wanted):
            with self._cache.writing(repo_id):
                if not self._is_complete(repo_id, commit, wanted):
                    missing = {p: f for p, f in wanted.items() if not self._has_blob(repo_id, f)}
                    size = sum(file.size for file in missing.values())
                    with progress_bar(f"{repo_id} {final.name}", size) as advance:
                        self._download(repo_id, commit, missing, advance)
                    self._link(repo_id, commit, final, wanted)
        self._note_refs(repo_id, commit)
        return final

    def link_root(self, repo_id: str) -> Path:
        """The kernel's directory in the cache: links lead to its blobs."""
        return self._cache.link_root(repo_id)

    def forget(self, repo_id: str) -> None:
        """Request the references again the next time."""
        self._refs.pop(repo_id, None)
        self._named = {key: at for key, at in self._named.items() if key[0] != repo_id}

    # -- answers of the hub -----------------------------------------------------------------

    def _known_refs(self, repo_id: str) -> Mapping[str, str]:
        check_repo_id(repo_id)
        with self._asking:
            asked, refs = self._refs.get(repo_id, (-_REFS_LAST_S, {}))
            if time.monotonic() - asked < _REFS_LAST_S:
                return refs
            try:
                refs = self.client.refs(repo_id)
            except NetworkError as error:
                refs = self._cached_refs(repo_id)
                if not refs:
                    raise
                log.warning("%s; using the references of %s in the cache", error.message, repo_id)
            self._refs[repo_id] = (time.monotonic(), refs)
            return refs

    def listing(self, repo_id: str, commit: str) -> Mapping[str, HubFile]:
        """All files of a commit by path; a commit never changes, so it is requested once.

        Raises:
            NotPublishedError: there is no such commit.
        """
        listing = self._find_listing(repo_id, commit)
        if listing is None:
            raise NotPublishedError(
                f"{repo_id} has no commit {commit} at {self.url}",
                hint="it never existed, or its branch was rewritten: lock the kernel again",
            )
        return listing

    def _find_listing(self, repo_id: str, commit: str) -> Mapping[str, HubFile] | None:
        """A commit's files: from this process, the disk, or the hub; None without such a commit."""
        check_repo_id(repo_id)
        with self._asking:
            listing = self._listings.get((repo_id, commit))
            if listing is None:
                path = self._cache.repo(repo_id) / "listings" / f"{commit}.json"
                listing = _read_listing(path) if COMMIT.fullmatch(commit) else None
                if listing is None:
                    try:
                        listing = self.client.listing(repo_id, commit)
                    except NetworkError:
                        found = self._cached_listing(repo_id, commit)
                        if not found:
                            raise
                        return found
                    if listing is None:
                        return None
                    # It only saves a request. Whoever holds the lock removes unfinished files.
                    with contextlib.suppress(StorageError), self._cache.writing(repo_id):
                        files.write_atomic(path, _dump_listing(listing))
                self._listings[repo_id, commit] = listing
            return listing

    # -- the cache --------------------------------------------------------------------------

    def _cached_refs(self, repo_id: str) -> dict[str, str]:
        """The references in the cache, and what the builds there say of themselves."""
        names = self._cache.ref_names(repo_id)
        refs = {name: self._cache.ref(repo_id, name) or "" for name in names}
        return {**self._unnamed(repo_id), **refs}

    def _cached_listing(self, repo_id: str, commit: str) -> dict[str, HubFile]:
        """The files of a commit that are in the cache, whichever client brought them."""
        root, found = self._cache.snapshot(repo_id, commit), {}
        if not self._cache.has_commit(repo_id, commit):
            return {}
        for path in root.rglob("*"):
            if path.is_symlink() and path.is_file():
                blob = path.readlink().name
                found[path.relative_to(root).as_posix()] = HubFile(
                    size=path.stat().st_size, blob=blob
                )
        return found

    def _unnamed(self, repo_id: str) -> dict[str, str]:
        """Branches by what the builds in the cache say, for commits that no reference there names.

        ``kernels`` fetches a version by its commit and leaves no reference. Of several commits of a
        version, the one that was fetched last counts.
        """
        named = {self._cache.ref(repo_id, name) for name in self._cache.ref_names(repo_id)}
        commits = [c for c in self._cache.commits(repo_id) if c not in named]
        times = {c: self._cache.snapshot(repo_id, c).stat().st_mtime_ns for c in commits}
        found = {}
        for commit in sorted(commits, key=times.__getitem__):
            for variant in self._cache.variants(repo_id, commit):
                with contextlib.suppress(RegistryError, IntegrityError):
                    document = self._cache.metadata(repo_id, commit, variant)
                    found[f"v{Metadata.from_json(document).version}"] = commit
                    break
        return found

    def _has_blob(self, repo_id: str, file: HubFile) -> bool:
        blob = self._cache.repo(repo_id) / "blobs" / file.blob
        with contextlib.suppress(OSError):
            return blob.stat().st_size == file.size
        return False

    def _is_complete(self, repo_id: str, commit: str, wanted: Mapping[str, HubFile]) -> bool:
        """Whether every file is in the snapshot, with its size."""
        root = self._cache.snapshot(repo_id, commit)
        with contextlib.suppress(OSError):
            return all((root / path).stat().st_size == f.size for path, f in wanted.items())
        return False

    def _download(
        self,
        repo_id: str,
        commit: str,
        wanted: Mapping[str, HubFile],
        advance: Callable[[int], None],
    ) -> None:
        """Store files as blobs; several at once, each under its name only when it is complete."""
        blobs = self._cache.repo(repo_id) / "blobs"
        by_blob = {file.blob: (path, file) for path, file in wanted.items()}
        ended = threading.Event()

        def download_file(path: str, file: HubFile) -> None:
            # Under a name of its own, so that the next run goes on where this one is killed.
            target = blobs / f"{PART}{file.blob}"
            self.client.download(
                repo_id, commit, path, file, target=target, advance=advance, ended=ended
            )
            files.flush(target)
            files.rename(target, blobs / file.blob)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(download_file, path, file) for path, file in by_blob.values()]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                ended.set()  # the others would go on to their ends, which may be gigabytes away
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _link(self, repo_id: str, commit: str, final: Path, wanted: Mapping[str, HubFile]) -> None:
        """Link a folder into a snapshot at once; complete one that another client began."""
        root = self._cache.snapshot(repo_id, commit)
        links = {
            path: f"{'../' * (path.count('/') + 2)}blobs/{file.blob}"
            for path, file in wanted.items()
        }
        with files.staging(self._cache.repo(repo_id) / "snapshots") as staged:
            for path, link in links.items():
                files.symlink(link, staged / path)
            if files.publish_tree(staged / final.relative_to(root), final):
                return
        for leftover in final.rglob("tmp-*"):
            if leftover.is_symlink():  # of a process that was killed here
                files.remove_tree(leftover)
        for path, link in links.items():
            target = root / path
            if not target.exists() or target.stat().st_size != wanted[path].size:
                files.symlink(link, target)

    def _note_refs(self, repo_id: str, commit: str) -> None:
        """Write the commit's references into the cache, for when there is no network."""
        _, refs = self._refs.get(repo_id, (0.0, {}))
        new = [
            name
            for name, target in refs.items()
            if target == commit and is_ref(name) and self._cache.ref(repo_id, name) != commit
        ]
        if new:
            # A cache in an image may be read-only.
            with contextlib.suppress(StorageError), self._cache.writing(repo_id):
                for name in new:
                    self._cache.set_ref(repo_id, name, commit)


def _read_listing(path: Path) -> dict[str, HubFile] | None:
    """A listing in the cache; None when there is none that can be read."""
    try:
        document = untrusted.parse_json(path.read_bytes())
        if document["schema"] != _LISTING:
            return None
        return {
            name: valid_file(name, size, blob) for name, (size, blob) in document["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _dump_listing(listing: Mapping[str, HubFile]) -> str:
    table = {path: [file.size, file.blob] for path, file in sorted(listing.items())}
    return json.dumps({"schema": _LISTING, "files": table})
