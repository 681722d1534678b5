# SPDX-License-Identifier: Apache-2.0
"""A registry as its server sees it: what many requests ask at once is read once.

References are read again after a second, so that a new version is seen. A commit never changes.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Generic, TypeVar

from kernforge.errors import NetworkError, NotPublishedError, RegistryError, RequestError
from kernforge.registry import api
from kernforge.registry.directory import Registry
from kernforge.registry.listing import SMALL, RemoteFile
from kernforge.registry.names import is_repo_id, request, versions
from kernforge.registry.remote import Part, RemoteRegistry
from kernforge.serve.access import READER

log = logging.getLogger("kernforge")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SHOWN = 40
"""Digits of a commit that the hub's clients accept; a commit of an OCI registry has 64."""


class ColdError(Exception):
    """Something that a thread reads now, while the event loop goes on."""

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self.future = future


async def when_warm(answer: Callable[[], V]) -> V:
    """The result of a function, which is called again after what it needs was read."""
    while True:
        try:
            return answer()
        except ColdError as cold:
            # Another request may wait for it too: a client that leaves cancels nothing.
            await asyncio.shield(asyncio.wrap_future(cold.future))


class Memo(Generic[K, V]):
    """Results of a slow function, each computed once for all that ask at the same time.

    While a server cannot be reached, the last result counts.

    Args:
        lasts_s: seconds until a result is computed again; twice the time that it took, if that is
            longer: a slow server is asked less often.
        most: results that are kept.
    """

    def __init__(
        self,
        compute: Callable[[K], V],
        pool: ThreadPoolExecutor,
        lasts_s: float = float("inf"),
        most: int = 2000,
    ) -> None:
        self._compute, self._pool, self._lasts_s, self._most = compute, pool, lasts_s, most
        self._known: dict[K, tuple[float, V]] = {}
        self._running: dict[K, Future[V]] = {}
        self._lock = threading.Lock()

    def get(self, key: K) -> V:
        """The result.

        Raises:
            ColdError: it is not there yet, and the caller is the event loop.
        """
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        with self._lock:
            future = self._running.get(key)
            if future is None:
                future = self._running[key] = self._pool.submit(self._run, key)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return future.result()
        raise ColdError(future)

    def _run(self, key: K) -> V:
        began = time.monotonic()
        try:
            try:
                value = self._compute(key)
            except NetworkError as error:
                if (last := self._known.get(key)) is None:
                    raise
                log.warning("%s; the last answer counts", error.message)
                value = last[1]
            now = time.monotonic()
            with self._lock:
                self._known[key] = (now + max(self._lasts_s, 2 * (now - began)), value)
                if len(self._known) > self._most:
                    del self._known[next(iter(self._known))]
            return value
        finally:
            with self._lock:
                del self._running[key]


class Source:
    """A registry for the pages and the protocol.

    Every method returns what the reader of the current request may see; a kernel that it may not
    see is one without references. In the event loop a method raises ``ColdError`` instead of
    waiting, see ``when_warm``; in a thread (an endpoint that is not ``async``) it waits. All may
    raise ``RegistryError`` or ``NetworkError``.

    Args:
        trusted: patterns of the owners that are trusted publishers here.
        url: the address that clients use; empty where the request names it.
    """

    def __init__(self, registry: Registry, *, trusted: tuple[str, ...] = (), url: str = "") -> None:
        self.registry, self.trusted, self.url = registry, trusted, url.rstrip("/")
        pool = ThreadPoolExecutor(16, "question")
        self._ids = Memo(self._list, pool, 10.0)
        self._refs = Memo(self._read_refs, pool, 1.0)
        self._commits = Memo(self._find, pool, 1.0)
        self._listings = Memo(self._read_listing, pool)
        self._links = Memo(self._sign, pool, 60.0)
        # Large files that a slow server sends must not keep questions waiting.
        self._files = Memo(self._fetch, ThreadPoolExecutor(8, "download"), 60.0, 50_000)

    def is_trusted(self, owner: str) -> bool:
        """Whether the operator marks an owner as a trusted publisher of kernels."""
        return any(fnmatchcase(owner, pattern) for pattern in self.trusted)

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels, sorted."""
        return tuple(filter(READER.get().may_read, self._ids.get("")))

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name; none if there is no such kernel."""
        return self._refs.get(repo_id) if READER.get().may_read(repo_id) else {}

    def commit(self, repo_id: str, revision: str = "") -> str | None:
        """The commit of a revision, by default of ``main`` or the newest version.

        Args:
            revision: a branch, a tag, a commit or the first 7 or more digits of one.
        """
        refs = self.refs(repo_id)
        if not refs:
            return None
        if not revision:
            names = ["main", *reversed(versions(refs).values()), *refs]
            return next(refs[name] for name in names if name in refs)
        name = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        if commit := refs.get(name):
            return commit
        known = (commit for commit in refs.values() if commit[:SHOWN] == name)
        return next(known, None) or self._commits.get((repo_id, name)) or None

    def listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile]:
        """All files of a commit by path."""
        return self._listings.get((repo_id, commit)) if READER.get().may_read(repo_id) else {}

    def link(self, repo_id: str, commit: str, path: str) -> str | None:
        """A URL at the storage from which a large file comes faster; None without."""
        file = self.listing(repo_id, commit)[path]
        return self._links.get((repo_id, commit, path)) if file.size > SMALL else None

    def file(self, repo_id: str, commit: str, path: str) -> Path:
        """A file of the commit's listing on this machine, complete."""
        self.listing(repo_id, commit)[path]  # of what the reader may see
        return self._files.get((repo_id, commit, path))

    def _list(self, _: str) -> tuple[str, ...]:
        return self.registry.repo_ids()

    def _read_refs(self, repo_id: str) -> Mapping[str, str]:
        if not is_repo_id(repo_id):
            return {}
        if isinstance(self.registry, RemoteRegistry):
            self.registry.forget(repo_id)
        try:
            return self.registry.refs(repo_id)
        except NotPublishedError:
            return {}

    def _find(self, key: tuple[str, str]) -> str:
        try:
            return api.find(self.registry, request(key[0], revision=key[1])).commit
        except (RegistryError, RequestError):  # an ambiguous prefix too
            return ""

    def _read_listing(self, key: tuple[str, str]) -> Mapping[str, RemoteFile]:
        return self.registry.listing(*key)

    def _sign(self, key: tuple[str, str, str]) -> str | None:
        repo_id, commit, path = key
        if not isinstance(self.registry, RemoteRegistry):
            return None
        part = Part.around({path: self.registry.listing(repo_id, commit)[path]})
        return None if part.is_pack else self.registry.transport.link(repo_id, commit, part)

    def _fetch(self, key: tuple[str, str, str]) -> Path:
        local, root = self.registry.file(*key), self.registry.link_root(key[0]).resolve()
        # A link of a copied registry could lead to any file of this machine.
        if local is None or not (local := local.resolve()).is_relative_to(root):
            raise RegistryError(
                f"{key[2]} of {key[0]} at {key[1]} is a link out of the registry",
                hint="delete the link, and publish the kernel again",
            )
        return local
