# SPDX-License-Identifier: Apache-2.0
"""A registry on a server, read through a cache on this machine.

A ``Transport`` says which references, commits and files the server has, and opens a file; the
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
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kernforge import untrusted
from kernforge.artifact.integrity import is_bytecode
from kernforge.errors import (
    IntegrityError,
    NetworkError,
    NotPublishedError,
    StorageError,
)
from kernforge.registry.base import Registry
from kernforge.registry.directory import (
    PART,
    CachedRegistry,
    DirectoryRegistry,
    refuse_other_bytes,
)
from kernforge.registry.names import COMMIT, SHA256, check_repo_id, is_ref
from kernforge.system import files
from kernforge.system.digest import git_blob

T = TypeVar("T")

_REFS_LAST_S = 60.0
_AT_ONCE = 8
_LISTING = 1
_WAITS_S = (0.5, 1.0, 2.0)
_LONGEST_WAIT_S = 60.0

log = logging.getLogger("kernforge")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """A file in a listing.

    Attributes:
        size: bytes.
        blob: the name of its content in a cache: hex SHA-256 of a large file, git's hex SHA-1 of
            any other. The bytes that arrive must have this hash.
    """

    size: int
    blob: str


def valid_file(path: Any, size: Any, blob: Any) -> RemoteFile:
    """A file of an untrusted listing.

    Raises:
        ValueError: its path leaves its commit, or its content is not named by a hash.
        TypeError: one of them is of another type.
    """
    strange = any(part in {"", ".", ".."} for part in path.split("/")) or not path.isprintable()
    plain = not strange and "\\" not in path and len(path) <= untrusted.NAME
    if not plain or not COMMIT.fullmatch(blob) or not 0 <= size <= untrusted.FILE:
        raise ValueError(
            f"the file {path[:200]!r} of {size} bytes with content {blob[:80]!r} is not valid"
        )
    return RemoteFile(size=int(size), blob=blob)


class BusyError(NetworkError):
    """A server cannot answer now; asking again may help, ``wait_s`` seconds later."""

    def __init__(self, message: str, *, hint: str, wait_s: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.wait_s = wait_s


def again(ask: Callable[[], T], wait: Callable[[float], object] | None = None) -> T:
    """Make a request, and a few times more while the server is busy.

    Args:
        ask: makes the request; it can be called again after an error.
        wait: waits for some seconds; None sleeps.
    """
    for usual in _WAITS_S:
        try:
            return ask()
        except BusyError as error:
            pause = min(max(usual, error.wait_s), _LONGEST_WAIT_S)
            if pause >= _WAITS_S[-1]:
                log.warning("%s; next attempt in %.0f s", error.message, pause)
            (wait or time.sleep)(pause)
    return ask()


class Transport(Protocol):
    """What a kind of remote registry brings; ``RemoteRegistry`` does the rest with a cache.

    Every method may raise ``NetworkError``, a ``BusyError`` where asking again may help.

    Attributes:
        address: of the server, for messages.
    """

    address: str

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """Branches and tags of a kernel with their commits.

        Raises:
            NotPublishedError: there is no such kernel, or it is not shown to this user.
        """
        ...

    def files(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile] | None:
        """All files of a commit by path, see ``valid_file``; None when there is no such commit."""
        ...

    def open(self, repo_id: str, commit: str, path: str, start: int) -> Iterator[bytes]:
        """The bytes of a file from ``start`` on, as they arrive."""
        ...


class RemoteRegistry(Registry):
    """A server; the module says which requests a load makes.

    A branch or tag that was seen keeps its commit for the life of a process: a model of many layers
    is one request, and a server does not change its kernels while it runs. References are requested
    at most once a minute, where a name is not known yet. When a server cannot be reached, the
    references in the cache are used, with a warning.

    Args:
        cache: a directory that is laid out as ``DirectoryRegistry`` has it.
    """

    def __init__(self, transport: Transport, url: str, cache: Path) -> None:
        self.transport, self.url = transport, url
        self.cache = CachedRegistry(cache, url, transport.address)
        self._refs: dict[str, tuple[float, Mapping[str, str]]] = {}
        self._listings: dict[tuple[str, str], Mapping[str, RemoteFile]] = {}
        self._asking = threading.RLock()

    def offline(self) -> Registry:
        """The cache."""
        return self.cache

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        with self._asking:
            return self._seen(repo_id).get(name) or self.refs(repo_id).get(name)

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name."""
        check_repo_id(repo_id)
        with self._asking:
            asked, refs = self._refs.get(repo_id, (-_REFS_LAST_S, {}))
            if time.monotonic() - asked < _REFS_LAST_S:
                return refs
            try:
                new = again(lambda: self.transport.refs(repo_id))
            except NetworkError as error:
                new = self.cache.refs(repo_id)
                if not new:
                    raise
                log.warning("%s; using the references of %s in the cache", error.message, repo_id)
            refs = dict(sorted({**new, **refs}.items()))
            self._refs[repo_id] = (time.monotonic(), refs)
            return refs

    def forget(self, repo_id: str) -> None:
        """Request the references again the next time."""
        self._refs.pop(repo_id, None)

    def _seen(self, repo_id: str) -> Mapping[str, str]:
        return self._refs.get(repo_id, (0.0, {}))[1]

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The commits that references name and those in the cache, sorted."""
        return tuple(sorted({*self.refs(repo_id).values(), *self.cache.commits(repo_id)}))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        return self._find_listing(repo_id, commit) is not None

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        paths = (path.split("/") for path in self.listing(repo_id, commit))
        return tuple(sorted({p[1] for p in paths if p[0] == "build" and len(p) > 2}))  # noqa: PLR2004

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        file = self.listing(repo_id, commit).get(path)
        if file is None:
            return None
        self._download(repo_id, commit, {path: file}, "")
        data = self._blob(repo_id, file).read_bytes()
        refuse_other_bytes(f"{path} of {repo_id}", file.blob, data)
        return data

    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """The directory of a folder of a commit in the cache, whole; None without."""
        wanted = {
            name: file
            for name, file in self.listing(repo_id, commit).items()
            if name.startswith(f"{path}/") and not is_bytecode(name)
        }
        if not wanted:
            return None
        snapshot = self.cache.snapshot(repo_id, commit)

        def is_complete() -> bool:
            return all(_has_size(snapshot / name, file) for name, file in wanted.items())

        if not is_complete():
            self._download(repo_id, commit, wanted, f"{repo_id} {path.rpartition('/')[2]}")
            with self.cache.writing(repo_id):
                if not is_complete():  # another process may have been first, and use it now
                    self._link(snapshot, path, wanted)
        self._note_refs(repo_id, commit)
        return snapshot / path

    def _link(self, snapshot: Path, path: str, wanted: Mapping[str, RemoteFile]) -> None:
        """Put a folder into a snapshot, complete, by one rename."""
        with files.staging(snapshot.parent) as staged:
            for name, file in wanted.items():
                files.symlink(f"{'../' * (name.count('/') + 2)}blobs/{file.blob}", staged / name)
            files.replace_tree(staged / path, snapshot / path)

    def link_root(self, repo_id: str) -> Path:
        """The kernel's directory in the cache: links lead to its blobs."""
        return self.cache.link_root(repo_id)

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
        path = self.link_root(repo_id) / "listings" / f"{commit}.json"
        with self._asking:
            listing = self._listings.get((repo_id, commit))
            if listing is None and COMMIT.fullmatch(commit):
                listing = _read_listing(path)
            if listing is None:
                try:
                    listing = again(lambda: self.transport.files(repo_id, commit))
                except NetworkError:
                    if not (found := self._cached_listing(repo_id, commit)):
                        raise
                    return found
                if listing is None:
                    return None
                # It only saves a request. Whoever holds the lock removes unfinished files.
                with contextlib.suppress(StorageError), self.cache.writing(repo_id):
                    table = {name: [f.size, f.blob] for name, f in sorted(listing.items())}
                    files.write_atomic(path, json.dumps({"schema": _LISTING, "files": table}))
            self._listings[repo_id, commit] = listing
            return listing

    def _cached_listing(self, repo_id: str, commit: str) -> dict[str, RemoteFile]:
        """The files of a commit that are in the cache, whichever client brought them."""
        if not self.cache.has_commit(repo_id, commit):
            return {}
        root = self.cache.snapshot(repo_id, commit)
        return {
            path.relative_to(root).as_posix(): RemoteFile(
                size=path.stat().st_size, blob=path.readlink().name
            )
            for path in root.rglob("*")
            if path.is_symlink() and path.is_file()
        }

    def _blob(self, repo_id: str, file: RemoteFile) -> Path:
        return self.link_root(repo_id) / "blobs" / file.blob

    def _download(
        self, repo_id: str, commit: str, wanted: Mapping[str, RemoteFile], what: str
    ) -> None:
        """Bring what the cache lacks of some files; several at once, one process at a time.

        Args:
            what: the name of the whole on a terminal.

        Raises:
            IntegrityError: the server sent other bytes than it listed, twice.
        """

        def missing() -> dict[str, tuple[str, RemoteFile]]:
            return {
                file.blob: (path, file)
                for path, file in wanted.items()
                if not _has_size(self._blob(repo_id, file), file)
            }

        if not missing():
            return
        ended = threading.Event()
        with self.cache.writing(repo_id), ThreadPoolExecutor(_AT_ONCE) as pool:
            lacking = missing().values()  # another process may have been first
            with _progress(what, sum(file.size for _, file in lacking)) as advance:
                jobs = [
                    pool.submit(
                        self._download_file,
                        (repo_id, commit, path),
                        file,
                        advance=advance,
                        ended=ended,
                    )
                    for path, file in lacking
                ]
                try:
                    for job in jobs:
                        job.result()
                except BaseException:
                    ended.set()  # the others would go on to their ends, maybe gigabytes away
                    pool.shutdown(wait=True, cancel_futures=True)
                    raise

    def _download_file(
        self,
        place: tuple[str, str, str],
        file: RemoteFile,
        *,
        advance: Callable[[int], None],
        ended: threading.Event,
    ) -> None:
        """Store a file of a kernel and commit as a blob, under its name only when it is right."""
        repo_id, commit, path = place
        blob = self._blob(repo_id, file)
        # Under a name of its own, so that the next run goes on where this one is killed.
        target = blob.with_name(f"{PART}{file.blob}")
        if not target.is_file() or target.stat().st_size > file.size:
            files.write_new(target, b"")
        advance(target.stat().st_size)

        def until_ended(chunks: Iterator[bytes]) -> Iterator[bytes]:
            for chunk in chunks:
                if ended.is_set():
                    raise CancelledError("the download was ended")
                yield chunk

        def go_on() -> None:
            have = target.stat().st_size
            if have < file.size:
                chunks = until_ended(self.transport.open(repo_id, commit, path, have))
                limited = untrusted.bounded(chunks, f"{path} of {repo_id}", file.size - have)
                files.write_stream(target, limited, append=True, advance=advance)
            if (have := target.stat().st_size) < file.size:
                raise BusyError(
                    f"{path} of {repo_id} was interrupted after {have} of {file.size} bytes",
                    hint="check the network, and try again: it goes on where it stopped",
                )

        for _ in range(2):
            again(go_on, ended.wait)
            found = files.sha256_file(target) if SHA256.fullmatch(file.blob) else git_blob(target)
            if found == file.blob:
                files.flush(target)
                files.rename(target, blob)
                return
            files.write_new(target, b"")
            advance(-file.size)
        files.remove_tree(target)
        raise IntegrityError(
            f"{path} of {repo_id} at {commit} is not what {self.transport.address} lists",
            hint="a proxy or the server changes files; nothing of it was kept",
        )

    def _note_refs(self, repo_id: str, commit: str) -> None:
        """Write the commit's references into the cache, for when there is no network."""
        written = DirectoryRegistry(self.cache.root)
        new = [
            name
            for name, target in self._seen(repo_id).items()
            if target == commit and is_ref(name) and written.ref(repo_id, name) != commit
        ]
        if new:
            # A cache in an image may be read-only.
            with contextlib.suppress(StorageError), written.writing(repo_id):
                for name in new:
                    written.set_ref(repo_id, name, commit)


def _has_size(path: Path, file: RemoteFile) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == file.size
    return False


@contextlib.contextmanager
def _progress(what: str, size: int) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how a download advances, by what is called with numbers of bytes."""
    done = shown = 0
    lock = threading.Lock()
    visible = bool(what and size and sys.stderr.isatty())

    def advance(count: int) -> None:
        nonlocal done, shown
        with lock:
            done += count
            if visible and (percent := 100 * done // size) != shown:
                shown = percent
                sys.stderr.write(f"\r{what}: {percent} % of {size / 1e6:.1f} MB")
                sys.stderr.flush()

    yield advance
    if visible:
        sys.stderr.write("\n")


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
