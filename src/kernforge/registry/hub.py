# SPDX-License-Identifier: Apache-2.0
"""A registry on a Hugging Face hub, read through the cache that the hub's own tools use.

A kernel is a repository of type ``kernel``: a branch ``v<major>`` and tags ``vX.Y.Z`` hold
``build/<variant>/<file>``. A cold load asks for the references, for the listing of the commit,
and for each file that the cache lacks; a listing names every file's hash, so no file is asked for
its hash first. A load by commit needs no references, and no request at all once its files are here.

What arrives is held against the listing's hash before it gets its name in the cache, and a variant
appears in its snapshot whole, by one rename.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import is_bytecode
from kernforge.artifact.metadata import FILE
from kernforge.errors import NetworkError, NotPublishedError, RegistryError, StorageError
from kernforge.registry.directory import DirectoryRegistry
from kernforge.registry.hub_client import Entry, HubClient, check_path
from kernforge.registry.names import COMMIT, REF, SOURCE, check_repo_id
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from kernforge.registry.hub_endpoint import HubPlace

_REFS_LAST_S = 60.0
_AT_ONCE = 8
_LISTING = 1

log = logging.getLogger("kernforge")


class HubRegistry:
    """A hub; see the module for what is asked when.

    References are asked for at most once a minute in a process, so that a model of many layers is
    one request. When a hub cannot be reached, what the cache knows answers, with a warning.

    Args:
        place: the hub and its cache.
        client: asks the hub.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        place: HubPlace,
        client: HubClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.place = place
        self.url = f"hf+{place.endpoint}"
        self.client = client or HubClient(place)
        self._cache = DirectoryRegistry(place.cache)
        self._clock = clock
        self._refs: dict[str, tuple[float, dict[str, str]]] = {}
        self._listings: dict[tuple[str, str], Mapping[str, Entry]] = {}
        self._asking = threading.RLock()

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        if self.place.offline:
            return self._cache.ref(repo_id, name)
        return self._known_refs(repo_id).get(name)

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        if self.place.offline:
            return self._cache.ref_names(repo_id)
        return tuple(sorted(self._known_refs(repo_id)))

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that references name and those in the cache, sorted."""
        named = () if self.place.offline else self._known_refs(repo_id).values()
        return tuple(sorted({*named, *self._cache.commits(repo_id)}))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        if self.place.offline:
            return self._cache.has_commit(repo_id, commit)
        return self._find_listing(repo_id, commit) is not None

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        if self.place.offline:
            return self._cache.variants(repo_id, commit)
        paths = (path.split("/") for path in self.listing(repo_id, commit))
        return tuple(sorted({p[1] for p in paths if p[0] == "build" and len(p) > 2}))  # noqa: PLR2004

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``."""
        document = self.companion(repo_id, commit, variant, FILE)
        if document is None:
            raise RegistryError(
                f"build/{variant}/{FILE} of {repo_id} at {commit} is missing at {self.url}",
                hint="it is an old build, or no build at all: build and publish the kernel again",
            )
        return document

    def companion(self, repo_id: str, commit: str, variant: str, name: str) -> bytes | None:
        """The bytes of a small file of a variant; None without."""
        return self.small_file(repo_id, commit, f"build/{variant}/{name}")

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        if self.place.offline:
            return self._cache.small_file(repo_id, commit, path)
        entry = self.listing(repo_id, commit).get(path)
        if entry is None:
            return None
        if not self._has_blob(repo_id, entry):
            with self._writing(repo_id):
                if not self._has_blob(repo_id, entry):  # another process may have been first
                    self._bring(repo_id, commit, {path: entry}, _silent)
        return (self._cache.repo(repo_id) / "blobs" / entry.blob).read_bytes()

    def trusted_publisher(self, owner: str) -> bool | None:
        """Whether the hub marks an organisation as a trusted publisher of kernels.

        Raises:
            NetworkError: it could not be asked.
        """
        if self.place.offline:
            raise NetworkError(
                f"{self.place.endpoint} may not be asked about {owner}: HF_HUB_OFFLINE is set",
                hint="allow the kernel by name, or ask while there is a network",
            )
        return self.client.trusts(owner)

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """The directory of a variant in the cache, with all the files that the hub lists for it."""
        if not self.place.offline:
            self._fetch(repo_id, commit, f"build/{variant}")
        return self._cache.fetch(repo_id, commit, variant)

    def source(self, repo_id: str, commit: str) -> Path | None:
        """The directory of a commit's sources in the cache, whole; None without."""
        return self.folder(repo_id, commit, SOURCE)

    def folder(self, repo_id: str, commit: str, name: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        if self.place.offline:
            return self._cache.folder(repo_id, commit, name)
        return self._fetch(repo_id, commit, name)

    def offline(self) -> HubRegistry:
        """The same hub, answering from its cache alone."""
        return HubRegistry(dataclasses.replace(self.place, offline=True))

    def _fetch(self, repo_id: str, commit: str, folder: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        listing = self.listing(repo_id, commit)
        wanted = {
            path: entry
            for path, entry in listing.items()
            if path.startswith(f"{folder}/") and not is_bytecode(path)
        }
        if not wanted:
            return None
        final = self._cache.snapshot(repo_id, commit) / folder
        if not self._whole(repo_id, commit, wanted):
            with self._writing(repo_id):
                if not self._whole(repo_id, commit, wanted):
                    missing = {p: e for p, e in wanted.items() if not self._has_blob(repo_id, e)}
                    size = sum(entry.size for entry in missing.values())
                    with _bar(f"{repo_id} {final.name}", size) as advance:
                        self._bring(repo_id, commit, missing, advance)
                    self._link(repo_id, commit, final, wanted)
        self._note_refs(repo_id, commit)
        return final

    def link_root(self, repo_id: str) -> Path:
        """The kernel's directory in the cache: links lead to its blobs."""
        return self._cache.link_root(repo_id)

    def forget(self, repo_id: str) -> None:
        """Ask for the references again the next time."""
        self._refs.pop(repo_id, None)

    # -- what the hub said ------------------------------------------------------------------

    def _known_refs(self, repo_id: str) -> Mapping[str, str]:
        check_repo_id(repo_id)
        with self._asking:
            asked, refs = self._refs.get(repo_id, (-_REFS_LAST_S, {}))
            if self._clock() - asked < _REFS_LAST_S:
                return refs
            try:
                refs = self.client.refs(repo_id)
            except NetworkError as error:
                names = self._cache.ref_names(repo_id)
                if not names:
                    raise
                log.warning("%s; the cache answers for %s", error.message, repo_id)
                refs = {name: self._cache.ref(repo_id, name) or "" for name in names}
            self._refs[repo_id] = (self._clock(), refs)
            return refs

    def listing(self, repo_id: str, commit: str) -> Mapping[str, Entry]:
        """All files of a commit by path; it never changes, so it is asked for once.

        Raises:
            NotPublishedError: there is no such commit.
        """
        found = self._find_listing(repo_id, commit)
        if found is None:
            raise NotPublishedError(
                f"{repo_id} has no commit {commit} at {self.url}",
                hint="it was never there, or its branch was rewritten: lock the kernel again",
            )
        return found

    def _find_listing(self, repo_id: str, commit: str) -> Mapping[str, Entry] | None:
        """A commit's files: from this process, the disk, or the hub. A commit never changes."""
        check_repo_id(repo_id)
        with self._asking:
            known = self._listings.get((repo_id, commit))
            if known is None:
                path = self._cache.repo(repo_id) / "listings" / f"{commit}.json"
                known = _read_listing(path, repo_id) if COMMIT.fullmatch(commit) else None
                if known is None:
                    known = self.client.listing(repo_id, commit)
                    if known is None:
                        return None
                    # It saves a request, no more. Whoever holds the lock sweeps unfinished files.
                    with contextlib.suppress(StorageError), self._writing(repo_id):
                        files.write_atomic(path, _dump_listing(known))
                self._listings[repo_id, commit] = known
            return known

    # -- the cache --------------------------------------------------------------------------

    def _writing(self, repo_id: str) -> contextlib.AbstractContextManager[None]:
        """Be the only one of us who brings files of this kernel."""
        return self._cache.writing(repo_id)

    def _has_blob(self, repo_id: str, entry: Entry) -> bool:
        blob = self._cache.repo(repo_id) / "blobs" / entry.blob
        with contextlib.suppress(OSError):
            return blob.stat().st_size == entry.size
        return False

    def _whole(self, repo_id: str, commit: str, wanted: Mapping[str, Entry]) -> bool:
        """Whether every file is in the snapshot, with its size."""
        root = self._cache.snapshot(repo_id, commit)
        with contextlib.suppress(OSError):
            return all((root / path).stat().st_size == e.size for path, e in wanted.items())
        return False

    def _bring(
        self,
        repo_id: str,
        commit: str,
        wanted: Mapping[str, Entry],
        advance: Callable[[int], None],
    ) -> None:
        """Make blobs of files; several at once, each under its name only when it is whole."""
        blobs = self._cache.repo(repo_id) / "blobs"
        by_blob = {entry.blob: (path, entry) for path, entry in wanted.items()}

        def one(path: str, entry: Entry) -> None:
            with files.staging(blobs) as staged:
                target = staged / "file"
                self.client.download(repo_id, commit, path, entry, target=target, advance=advance)
                files.rename(target, blobs / entry.blob)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(one, path, entry) for path, entry in by_blob.values()]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _link(self, repo_id: str, commit: str, final: Path, wanted: Mapping[str, Entry]) -> None:
        """Let a folder of a snapshot appear whole; complete one that another client began."""
        root = self._cache.snapshot(repo_id, commit)
        links = {
            path: f"{'../' * (path.count('/') + 2)}blobs/{entry.blob}"
            for path, entry in wanted.items()
        }
        with files.staging(self._cache.repo(repo_id) / "snapshots") as staged:
            for path, link in links.items():
                files.symlink(link, staged / path)
            if files.publish_tree(staged / final.relative_to(root), final):
                return
        for path, link in links.items():
            there = root / path
            if not there.exists() or there.stat().st_size != wanted[path].size:
                files.symlink(link, there)

    def _note_refs(self, repo_id: str, commit: str) -> None:
        """Let the cache know which names the commit has, for when there is no network."""
        _, refs = self._refs.get(repo_id, (0.0, {}))
        new = [
            name
            for name, target in refs.items()
            if target == commit and REF.fullmatch(name) and self._cache.ref(repo_id, name) != commit
        ]
        if new:
            # A cache in an image may be read-only.
            with contextlib.suppress(StorageError), self._writing(repo_id):
                for name in new:
                    self._cache.set_ref(repo_id, name, commit)


def _read_listing(path: Path, repo_id: str) -> dict[str, Entry] | None:
    """A listing that was kept; None when there is none that can be read."""
    try:
        document = json.loads(path.read_bytes())
        if document["schema"] != _LISTING:
            return None
        listing = {
            name: Entry(size=int(size), blob=str(blob))
            for name, (size, blob) in document["files"].items()
        }
        for name, entry in listing.items():
            check_path(repo_id, name, entry)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RegistryError):
        return None
    return listing


def _dump_listing(listing: Mapping[str, Entry]) -> str:
    entries = {path: [entry.size, entry.blob] for path, entry in sorted(listing.items())}
    return json.dumps({"schema": _LISTING, "files": entries})


@contextlib.contextmanager
def _bar(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """The hub's own progress bar, where somebody watches and has not switched it off."""
    if not size or not sys.stderr.isatty():
        yield _silent
        return
    from kernforge.registry.hub_client import progress_bar  # noqa: PLC0415 - imports the hub's client

    with progress_bar(what, size) as advance:
        yield advance


def _silent(_count: int) -> None:
    """Tell nobody."""
