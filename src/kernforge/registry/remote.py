# SPDX-License-Identifier: Apache-2.0
"""A registry on a server, read through a cache on this machine.

A ``Transport`` says which references, commits and files the server has, and brings a file; the
rest is here, once for all kinds of servers. The cache is laid out as a ``DirectoryRegistry``. A
cold load requests the references, the listing of the commit, and each file that the cache lacks; a
listing has every file's hash, so no file needs a request for its hash. A load by commit needs no
references, and no request at all once its files are in the cache.

Files that arrive are compared with the hash of the listing before they get their name in the
cache, and a variant appears in its snapshot complete, by one rename.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

from kernforge import untrusted
from kernforge.artifact.integrity import is_bytecode
from kernforge.artifact.metadata import Metadata
from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    RegistryError,
    StorageError,
)
from kernforge.registry.base import Registry, RemoteFile, Transport, valid_file
from kernforge.registry.directory import PART, DirectoryRegistry, refuse_other_bytes
from kernforge.registry.names import COMMIT, SHA256, check_repo_id, is_ref
from kernforge.system import files
from kernforge.system.digest import git_blob

_REFS_LAST_S = 60.0
_AT_ONCE = 8
_LISTING = 1

log = logging.getLogger("kernforge")


class RemoteRegistry(Registry):
    """A server; the module says which requests a load makes.

    A branch or tag that was found keeps its commit for the life of a process: a model of many
    layers is one request, and a server does not change its kernels while it runs. Lists of
    references, and names that were not found, are requested at most once a minute. When a server
    cannot be reached, the references in the cache are used, with a warning.
    """

    def __init__(self, transport: Transport, url: str) -> None:
        self.transport = transport
        self.url = url
        self._cache = DirectoryRegistry(transport.cache)
        self._refs: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._named: dict[tuple[str, str], str] = {}
        self._listings: dict[tuple[str, str], Mapping[str, RemoteFile]] = {}
        self._asking = threading.RLock()

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels that its cache on this machine holds, sorted."""
        return self._cache.repo_ids()

    def progress(self, what: str, size: int) -> AbstractContextManager[Callable[[int], None]]:  # noqa: ARG002 - a kind may draw it
        """Show how a download of a size advances, by what is called with numbers of bytes."""
        return contextlib.nullcontext(lambda _count: None)

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        if self.transport.is_offline:
            return self._cache.ref(repo_id, name) or self._unnamed(repo_id).get(name)
        with self._asking:
            commit = self._named.get((repo_id, name)) or self._known_refs(repo_id).get(name)
            if commit:
                self._named[repo_id, name] = commit
            return commit

    def ref_names(self, repo_id: str) -> tuple[str, ...]:
        """All branches and tags, sorted."""
        if self.transport.is_offline:
            return tuple(sorted({*self._cache.ref_names(repo_id), *self._unnamed(repo_id)}))
        return tuple(sorted(self._known_refs(repo_id)))

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that references name and those in the cache, sorted."""
        named = () if self.transport.is_offline else self._known_refs(repo_id).values()
        return tuple(sorted({*named, *self._cache.commits(repo_id)}))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        if self.transport.is_offline:
            return self._cache.has_commit(repo_id, commit)
        return self._find_listing(repo_id, commit) is not None

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        if self.transport.is_offline:
            return self._cache.variants(repo_id, commit)
        paths = (path.split("/") for path in self.listing(repo_id, commit))
        return tuple(sorted({p[1] for p in paths if p[0] == "build" and len(p) > 2}))  # noqa: PLR2004

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        if self.transport.is_offline:
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

    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        if self.transport.is_offline:
            return self._cache.folder(repo_id, commit, path)
        listing = self.listing(repo_id, commit)
        wanted = {
            name: file
            for name, file in listing.items()
            if name.startswith(f"{path}/") and not is_bytecode(name)
        }
        if not wanted:
            return None
        final = self._cache.snapshot(repo_id, commit) / path
        if not self._is_complete(repo_id, commit, wanted):
            with self._cache.writing(repo_id):
                if not self._is_complete(repo_id, commit, wanted):
                    missing = {p: f for p, f in wanted.items() if not self._has_blob(repo_id, f)}
                    size = sum(file.size for file in missing.values())
                    with self.progress(f"{repo_id} {final.name}", size) as advance:
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

    # -- answers of the server --------------------------------------------------------------

    def _known_refs(self, repo_id: str) -> Mapping[str, str]:
        check_repo_id(repo_id)
        with self._asking:
            asked, refs = self._refs.get(repo_id, (-_REFS_LAST_S, {}))
            if time.monotonic() - asked < _REFS_LAST_S:
                return refs
            try:
                refs = self.transport.refs(repo_id)
            except NetworkError as error:
                refs = self._cached_refs(repo_id)
                if not refs:
                    raise
                log.warning("%s; using the references of %s in the cache", error.message, repo_id)
            self._refs[repo_id] = (time.monotonic(), refs)
            return refs

    def listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile]:
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

    def _find_listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """A commit's files: from this process, the disk or the server; None without the commit."""
        check_repo_id(repo_id)
        with self._asking:
            listing = self._listings.get((repo_id, commit))
            if listing is None:
                path = self._cache.repo(repo_id) / "listings" / f"{commit}.json"
                listing = _read_listing(path) if COMMIT.fullmatch(commit) else None
                if listing is None:
                    try:
                        listing = self.transport.files(repo_id, commit)
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

    def _cached_listing(self, repo_id: str, commit: str) -> dict[str, RemoteFile]:
        """The files of a commit that are in the cache, whichever client brought them."""
        root, found = self._cache.snapshot(repo_id, commit), {}
        if not self._cache.has_commit(repo_id, commit):
            return {}
        for path in root.rglob("*"):
            if path.is_symlink() and path.is_file():
                blob = path.readlink().name
                found[path.relative_to(root).as_posix()] = RemoteFile(
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

    def _has_blob(self, repo_id: str, file: RemoteFile) -> bool:
        blob = self._cache.repo(repo_id) / "blobs" / file.blob
        with contextlib.suppress(OSError):
            return blob.stat().st_size == file.size
        return False

    def _is_complete(self, repo_id: str, commit: str, wanted: Mapping[str, RemoteFile]) -> bool:
        """Whether every file is in the snapshot, with its size."""
        root = self._cache.snapshot(repo_id, commit)
        with contextlib.suppress(OSError):
            return all((root / path).stat().st_size == f.size for path, f in wanted.items())
        return False

    def _download(
        self,
        repo_id: str,
        commit: str,
        wanted: Mapping[str, RemoteFile],
        advance: Callable[[int], None],
    ) -> None:
        """Store files as blobs; several at once, each under its name only when it is right.

        Raises:
            IntegrityError: the server sent other bytes than it listed, twice.
        """
        blobs = self._cache.repo(repo_id) / "blobs"
        by_blob = {file.blob: (path, file) for path, file in wanted.items()}
        ended = threading.Event()

        def download_file(path: str, file: RemoteFile) -> None:
            # Under a name of its own, so that the next run goes on where this one is killed.
            target = blobs / f"{PART}{file.blob}"
            have = target.stat().st_size if target.is_file() else 0
            if 0 < have <= file.size:
                advance(have)
            else:
                files.write_new(target, b"")
            for _ in range(2):
                self.transport.download(
                    repo_id, commit, path, file, target=target, advance=advance, ended=ended
                )
                if _blob_name(target, file) == file.blob:
                    files.flush(target)
                    files.rename(target, blobs / file.blob)
                    return
                files.write_new(target, b"")
                advance(-file.size)
            files.remove_tree(target)
            raise IntegrityError(
                f"{path} of {repo_id} at {commit} is not what {self.transport.address} lists",
                hint="a proxy or the server changes files; nothing of it was kept",
            )

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(download_file, path, file) for path, file in by_blob.values()]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                ended.set()  # the others would go on to their ends, which may be gigabytes away
                pool.shutdown(wait=True, cancel_futures=True)
                raise

    def _link(
        self, repo_id: str, commit: str, final: Path, wanted: Mapping[str, RemoteFile]
    ) -> None:
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


def _blob_name(path: Path, file: RemoteFile) -> str:
    """The name of a file's content in a cache, by the kind of hash that its listing has."""
    return files.sha256_file(path) if SHA256.fullmatch(file.blob) else git_blob(path)


def _read_listing(path: Path) -> dict[str, RemoteFile] | None:
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


def _dump_listing(listing: Mapping[str, RemoteFile]) -> str:
    table = {path: [file.size, file.blob] for path, file in sorted(listing.items())}
    return json.dumps({"schema": _LISTING, "files": table})
