# SPDX-License-Identifier: Apache-2.0
"""A registry as its server sees it: what many requests ask at once is read once.

References are read again after a second, so that a new version is seen. A commit never changes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Generic, TypeVar

from kernforge.artifact.integrity import refuse_link_out
from kernforge.errors import NetworkError, NotPublishedError, RegistryError, RequestError
from kernforge.registry import api
from kernforge.registry.directory import Registry
from kernforge.registry.listing import SMALL, RemoteFile
from kernforge.registry.names import is_repo_id, request, versions
from kernforge.registry.remote import Part, RemoteRegistry
from kernforge.serve.access import READER

log = logging.getLogger("kernforge")

V = TypeVar("V")

SHOWN = 40
"""Digits of a commit that the hub's clients accept; a commit of an OCI registry has 64."""


class Memo(Generic[V]):
    """Results of a slow function, each computed once for all that ask at the same time.

    It runs in threads of its own: a slow download keeps no question waiting. While a server cannot
    be reached, the last result counts.

    Args:
        lasts_s: seconds until a result is computed again; twice the time that it took, if that is
            longer: a slow server is asked less often.
        most: results that are kept.
    """

    def __init__(
        self, compute: Callable[..., V], lasts_s: float = float("inf"), most: int = 2000
    ) -> None:
        self._compute, self._lasts_s, self._most = compute, lasts_s, most
        self._known: dict[tuple[Hashable, ...], tuple[float, V]] = {}
        self._running: dict[tuple[Hashable, ...], asyncio.Future[V]] = {}
        self._pool = ThreadPoolExecutor(8)

    async def get(self, *key: Hashable) -> V:
        """The result for some arguments of the function."""
        known = self._known.get(key)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        if key not in self._running:
            self._running[key] = asyncio.ensure_future(self._run(key))
        # Others may wait for it too: a client that leaves cancels nothing.
        return await asyncio.shield(self._running[key])

    async def _run(self, key: tuple[Hashable, ...]) -> V:
        began, loop = time.monotonic(), asyncio.get_running_loop()
        try:
            value = await loop.run_in_executor(self._pool, self._compute, *key)
        except NetworkError as error:
            if (last := self._known.get(key)) is None:
                raise
            log.warning("%s; the last answer counts", error.message)
            value = last[1]
        finally:
            del self._running[key]
        now = time.monotonic()
        self._known[key] = (now + max(self._lasts_s, 2 * (now - began)), value)
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return value


class Source:
    """A registry for the pages and the protocol.

    Every method returns what the reader of the current request may see; a kernel that it may not
    see is one without references. All may raise ``RegistryError`` or ``NetworkError``.

    Args:
        trusted: patterns of the owners that are trusted publishers here.
        url: the address that clients use; empty where the request names it.
    """

    def __init__(self, registry: Registry, *, trusted: tuple[str, ...] = (), url: str = "") -> None:
        self.registry, self.trusted, self.url = registry, trusted, url.rstrip("/")
        self._ids = Memo(registry.repo_ids, 10.0)
        self._refs = Memo(self._read_refs, 1.0)
        self._commits = Memo(self._find, 1.0)
        self._listings = Memo(registry.listing)
        self._contents = Memo(self._fetch, 60.0, 50_000)

    def is_trusted(self, owner: str) -> bool:
        """Whether the operator marks an owner as a trusted publisher of kernels."""
        return any(fnmatchcase(owner, pattern) for pattern in self.trusted)

    async def repo_ids(self) -> tuple[str, ...]:
        """The kernels, sorted."""
        return tuple(filter(READER.get().may_read, await self._ids.get()))

    async def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name; none if there is no such kernel."""
        return await self._refs.get(repo_id) if READER.get().may_read(repo_id) else {}

    async def commit(self, repo_id: str, revision: str = "") -> str | None:
        """The commit of a revision, by default of ``main`` or the newest version.

        Args:
            revision: a branch, a tag, a commit or the first 7 or more digits of one.
        """
        refs = await self.refs(repo_id)
        if not refs:
            return None
        if not revision:
            names = ["main", *reversed(versions(refs).values()), *refs]
            return next(refs[name] for name in names if name in refs)
        name = revision.removeprefix("refs/heads/").removeprefix("refs/tags/")
        if commit := refs.get(name):
            return commit
        known = (commit for commit in refs.values() if commit[:SHOWN] == name)
        return next(known, None) or await self._commits.get(repo_id, name) or None

    async def listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile]:
        """All files of a commit by path."""
        return await self._listings.get(repo_id, commit) if READER.get().may_read(repo_id) else {}

    async def content(self, repo_id: str, commit: str, path: str) -> str | Path:
        """A file of the commit's listing: on this machine, or a URL where it comes faster."""
        (await self.listing(repo_id, commit))[path]  # of what the reader may see
        return await self._contents.get(repo_id, commit, path)

    def _read_refs(self, repo_id: str) -> Mapping[str, str]:
        if not is_repo_id(repo_id):
            return {}
        if isinstance(self.registry, RemoteRegistry):
            self.registry.forget(repo_id)
        else:  # a link of a copied registry could lead to the operator's own cache
            refuse_link_out(self.registry.link_root(repo_id), self.registry.root)
        try:
            return self.registry.refs(repo_id)
        except NotPublishedError:
            return {}

    def _find(self, repo_id: str, revision: str) -> str:
        try:
            return api.find(self.registry, request(repo_id, revision=revision)).commit
        except (RegistryError, RequestError):  # an ambiguous prefix too
            return ""

    def _fetch(self, repo_id: str, commit: str, path: str) -> str | Path:
        if isinstance(self.registry, RemoteRegistry):
            part = Part.around({path: self.registry.listing(repo_id, commit)[path]})
            if part.size > SMALL and not part.file.pack:
                link = self.registry.transport.link(repo_id, commit, part)
                if link:
                    return link
        local = self.registry.file(repo_id, commit, path)
        if local is None:
            raise RegistryError(
                f"{path} of {repo_id} at {commit} was removed", hint="publish the kernel again"
            )
        return local.resolve()
