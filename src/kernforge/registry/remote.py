# SPDX-License-Identifier: Apache-2.0
"""A registry on a server, read through a cache on this machine.

A ``Transport`` is one kind of server: its references, the files of a commit, and the bytes of a
file. The rest is here, once for all kinds. A cold load requests the references, the listing of the
commit, and each file that the cache lacks; a listing has the hash of every file. A load by commit
needs no references, and no request at all once its files are in the cache.

Files that arrive are compared with the hash of the listing before they get their name in the
cache, and a variant appears in its snapshot complete, by one rename.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Generator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from kernforge.artifact.integrity import is_bytecode, read_file
from kernforge.errors import IntegrityError, NetworkError, NotPublishedError, StorageError
from kernforge.registry.directory import (
    DirectoryRegistry,
    Registry,
    link_to_blob,
    read_checked,
)
from kernforge.registry.listing import (
    MALFORMED,
    RemoteFile,
    read_listing,
    refuse_paths,
    write_listing,
)
from kernforge.registry.names import COMMIT, SHA256
from kernforge.system import files, progress, untrusted
from kernforge.system.digest import git_blob, sha256
from kernforge.system.environment import is_terminal
from kernforge.system.forks import free_in_child
from kernforge.system.http import BusyError, again

_REFS_LAST_S = 60.0
_AT_ONCE = 8
_PART = "tmp-kernforge-{:.32}"  # a later download continues it, or a sweep removes it
_SMALL_PACK = 1 << 20  # bytes that are requested whole for one file

log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one object of a server, for one file or for several of a pack.

    Attributes:
        path: the file, of several the first one.
        start: of the bytes in the object.
        stop: behind the last byte.
    """

    path: str
    file: RemoteFile
    start: int
    stop: int

    @classmethod
    def around(cls, files: Mapping[str, RemoteFile]) -> Self:
        """The part with files of one object."""
        path, first = min(files.items(), key=lambda item: item[1].offset)
        stop = max(file.offset + file.size for file in files.values())
        return cls(path, first, first.offset, stop)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


class Transport:
    """A kind of server.

    Every method may raise ``NetworkError``, a ``BusyError`` if a retry may help.
    """

    address: str

    def ref(self, repo_id: str, name: str) -> str | None:  # noqa: ARG002 - see below
        """The commit of one branch or tag, where ``refs`` needs more requests; else None."""
        return None

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits.

        Raises:
            NotPublishedError: there is no such kernel, or it is not visible to this user.
        """
        raise NotImplementedError

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path, see ``valid_file``; None if there is no such commit."""
        raise NotImplementedError

    def open(self, repo_id: str, commit: str, part: Part) -> Generator[bytes, None, None]:
        """The bytes of a part, as they arrive; to close it ends the request."""
        raise NotImplementedError

    def repo_ids(self) -> tuple[str, ...] | None:
        """The kernels on the server, sorted; None if it cannot list them."""
        return None

    def link(self, repo_id: str, commit: str, part: Part) -> str | None:  # noqa: ARG002 - a default
        """A URL that gives the part's object to anybody for some minutes; None without."""
        return None


class RemoteRegistry(Registry):
    """A server; the module says which requests a load makes.

    A branch or tag keeps its commit for the life of a process: a model of many layers is one
    request, and a server does not change its kernels while it runs. References are requested at
    most once a minute, for unknown names. When a server cannot be reached, the references in the
    cache are used, with a warning.
    """

    def __init__(self, transport: Transport, url: str, cache: Path) -> None:
        super().__init__(cache, url)
        self.transport = transport
        self._refs: dict[str, Mapping[str, str]] = {}
        self._requested: dict[str, float] = {}  # when the references were
        self._listings: dict[tuple[str, str], Mapping[str, RemoteFile]] = {}
        self._asking = free_in_child(threading.RLock())

    def offline(self) -> Registry:
        """The cache."""
        return DirectoryRegistry(self.root, self.url, self.transport.address)

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit of a branch or tag."""
        with self._asking:
            if name not in (known := self._refs.get(repo_id, {})):
                with contextlib.suppress(NetworkError):  # the cache may have it, see ``refs``
                    if commit := again(lambda: self.transport.ref(repo_id, name)):
                        self._refs[repo_id] = known = {**known, name: commit}
            return known.get(name) or self.refs(repo_id).get(name)

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name."""
        with self._asking:
            known = self._refs.get(repo_id, {})
            if time.monotonic() - self._requested.get(repo_id, -_REFS_LAST_S) < _REFS_LAST_S:
                return known
            try:
                new = again(lambda: self.transport.refs(repo_id))
            except NetworkError as error:
                new = self.offline().refs(repo_id)
                if not new:
                    raise
                log.warning("%s; using the references of %s in the cache", error.message, repo_id)
            self._refs[repo_id] = dict(sorted({**new, **known}.items()))
            self._requested[repo_id] = time.monotonic()
            return self._refs[repo_id]

    def forget(self, repo_id: str) -> None:
        """Request the references again the next time."""
        self._refs.pop(repo_id, None)
        self._requested.pop(repo_id, None)

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits with a reference and those in the cache, sorted."""
        return tuple(sorted({*self.refs(repo_id).values(), *super().commits(repo_id)}))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether a full commit exists."""
        try:
            self.listing(repo_id, commit)
        except NotPublishedError:
            return False
        return True

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        paths = (path.split("/") for path in self.listing(repo_id, commit))
        return tuple(sorted({p[1] for p in paths if p[0] == "build" and len(p) > 2}))  # noqa: PLR2004

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit; None if the commit has no such file."""
        local = self.file(repo_id, commit, path)
        return None if local is None else read_checked(local, self.link_root(repo_id), local.name)

    def file(self, repo_id: str, commit: str, path: str) -> Path | None:
        """A file of a commit in the cache, complete; None if the commit has no such file."""
        file = self.listing(repo_id, commit).get(path)
        if file is None:
            return None
        self._download(repo_id, commit, {path: file})
        return self.link_root(repo_id) / "blobs" / file.blob

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels on the server, sorted; those in the cache if it cannot list them."""
        listed = again(self.transport.repo_ids)
        return super().repo_ids() if listed is None else listed

    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """The directory of a folder of a commit in the cache, complete; None if there is none."""
        wanted = {
            name: file
            for name, file in self.listing(repo_id, commit).items()
            if name.startswith(f"{path}/") and not is_bytecode(name)
        }
        if not wanted:
            return None
        snapshot = self.snapshot(repo_id, commit)

        def is_complete() -> bool:
            return all(_has_size(snapshot / name, file) for name, file in wanted.items())

        if not is_complete():
            self._download(repo_id, commit, wanted, f"{repo_id} {path.rpartition('/')[2]}")
            with self.writing(repo_id):
                if not is_complete():  # another process may have been first, and use it now
                    with files.staging(snapshot.parent) as staged:
                        for name, file in wanted.items():
                            link_to_blob(staged / name, name, file.blob)
                        files.replace_tree(staged / path, snapshot / path)
        self._cache_refs(repo_id, commit)
        return snapshot / path

    def listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile]:
        """All files of a commit by path: from this process, the cache or the server."""
        path = self.link_root(repo_id) / "listings" / f"{commit}.json"
        with self._asking:
            listing = self._listings.get((repo_id, commit))
            if listing is None and COMMIT.fullmatch(commit):
                with contextlib.suppress(OSError, *MALFORMED):
                    listing = read_listing(read_file(path, within=self.link_root(repo_id)))
            if listing is None:
                listing = again(lambda: self.transport.files(repo_id, commit))
                if listing is None:
                    raise NotPublishedError(
                        f"{repo_id} has no commit {commit} at {self.url}",
                        hint="it never existed, or its branch was rewritten: lock the kernel again",
                    )
                refuse_paths(repo_id, listing)
                # It only saves a request. The holder of the lock removes unfinished files.
                with contextlib.suppress(StorageError), self.writing(repo_id):
                    files.write_atomic(path, write_listing(listing))
            self._listings[repo_id, commit] = listing
            return listing

    def _download(
        self, repo_id: str, commit: str, wanted: Mapping[str, RemoteFile], what: str = ""
    ) -> None:
        """Download the files that the cache lacks, one process at a time.

        Args:
            what: the name of the whole on a terminal; nothing is printed without.
        """
        blobs = self.link_root(repo_id) / "blobs"
        wanted = {**_small_packs(self.listing(repo_id, commit), wanted), **wanted}

        def missing() -> dict[str, RemoteFile]:
            paths = {file.blob: path for path, file in wanted.items()}
            return {
                path: wanted[path]
                for blob, path in paths.items()
                if not _has_size(blobs / blob, wanted[path])
            }

        if missing():
            with self.writing(repo_id):
                # Another process may have been first.
                _Download(self.transport, repo_id, commit, blobs).run(missing(), what)

    def _cache_refs(self, repo_id: str, commit: str) -> None:
        """Write the commit's references into the cache, for a load without a network."""
        cache = DirectoryRegistry(self.root)
        new = [
            name
            for name, target in self._refs.get(repo_id, {}).items()
            if target == commit and cache.ref(repo_id, name) != commit
        ]
        if new:
            # A cache in an image may be read-only.
            with contextlib.suppress(StorageError), self.writing(repo_id):
                for name in new:
                    cache.set_ref(repo_id, name, commit)


class _Download:
    """A download of files of one commit into a directory of blobs, several at once."""

    def __init__(self, transport: Transport, repo_id: str, commit: str, blobs: Path) -> None:
        self._transport, self._blobs = transport, blobs
        self._repo_id, self._commit = repo_id, commit
        self._failed = threading.Event()
        self._lock = threading.Lock()
        self._what, self._size, self._done, self._shown = "", 0, 0, 0

    def run(self, wanted: Mapping[str, RemoteFile], what: str) -> None:
        """Download all files; the first error ends the download of the others."""
        objects: dict[str, dict[str, RemoteFile]] = {}
        for path, file in wanted.items():
            objects.setdefault(file.object, {})[path] = file
        parts = [(Part.around(members), members) for members in objects.values()]
        self._size = sum(part.size for part, _ in parts)
        self._what = what if self._size and is_terminal(sys.stderr) else ""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = [pool.submit(self._store, part, members) for part, members in parts]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                self._failed.set()  # the others would go on to their ends, maybe gigabytes away
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        if self._what:
            progress.write("\n")

    def _store(self, part: Part, members: Mapping[str, RemoteFile]) -> None:
        """Store the files of a part as blobs; each gets its name only once its hash is right."""
        # Under a name of its own, so that the next run continues a killed one.
        target = self._blobs / _PART.format(sha256(f"{part.file.object} {part.start}"))
        if target.is_file():
            self._advance(target.stat().st_size)
        wrong = ""
        for _ in range(2):  # bytes of an earlier run may be damaged
            again(lambda: self._resume(target, part), self._failed.wait)
            wrong = self._divide(target, part, members)
            files.remove_tree(target)
            if not wrong:
                return
            self._advance(-part.size)
        raise IntegrityError(
            f"{wrong} of {self._repo_id} at {self._commit} is not what "
            f"{self._transport.address} lists",
            hint="a proxy or the server changes files; the download was deleted",
        )

    def _resume(self, target: Path, part: Part) -> None:
        """Download the rest of a part."""
        what = f"{part.path} of {self._repo_id}"
        if not target.is_file():
            files.write_new(target, b"")
        if (have := target.stat().st_size) < part.size:
            rest = replace(part, start=part.start + have)
            chunks = self._transport.open(self._repo_id, self._commit, rest)
            with contextlib.closing(chunks):  # an error's traceback would hold the connection
                limited = untrusted.bounded(chunks, what, part.size - have)
                files.write_stream(target, limited, self._advance)
        if (have := target.stat().st_size) < part.size:
            raise BusyError(
                f"{what} was interrupted after {have} of {part.size} bytes",
                hint="check the network, and try again: the download continues there",
            )

    def _divide(self, target: Path, part: Part, members: Mapping[str, RemoteFile]) -> str:
        """Store the files of a downloaded part, or none; returns one whose hash is wrong."""
        copies: dict[Path, Path] = {}
        for path, file in members.items():
            copy = target
            if file.pack:
                copy = target.with_name(_PART.format(sha256(f"{target.name} {file.blob}")))
                files.copy_slice(target, copy, file.offset - part.start, file.size)
            copies[copy] = self._blobs / file.blob
            digest = files.sha256_file(copy) if SHA256.fullmatch(file.blob) else git_blob(copy)
            if digest != file.blob:
                for each in copies:
                    files.remove_tree(each)
                return path
        for copy, blob in copies.items():
            files.flush(copy)
            files.publish_tree(copy, blob)
        return ""

    def _advance(self, count: int) -> None:
        """Count bytes, and show the progress on a terminal."""
        if self._failed.is_set():
            raise CancelledError("another file failed")
        with self._lock:
            self._done += count
            percent = 100 * self._done // (self._size or 1)
            if self._what and percent != self._shown:
                self._shown = percent
                progress.draw(f"{self._what}: {percent} % of {self._size / 1e6:.1f} MB")


def _has_size(path: Path, file: RemoteFile) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == file.size
    return False


def _small_packs(
    listing: Mapping[str, RemoteFile], wanted: Mapping[str, RemoteFile]
) -> dict[str, RemoteFile]:
    """All files of the small packs that wanted files are in: one request brings them."""
    packs: dict[str, dict[str, RemoteFile]] = {file.pack: {} for file in wanted.values()}
    for path, file in listing.items():
        if file.pack in packs:
            packs[file.pack][path] = file
    packs.pop("", None)
    small = (members for members in packs.values() if Part.around(members).size <= _SMALL_PACK)
    return {path: file for members in small for path, file in members.items()}
